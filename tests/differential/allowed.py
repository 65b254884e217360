"""The differences that are meant: each with the rule of list-watch.md that says so.

An entry that matches nothing fails the tests, so none of them outlives its difference.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.differential.asking import MISSING, Ask, Difference, differences

Holds = Callable[[Any], bool]


def _anything(_: Any) -> bool:
    return True


def _missing(value: Any) -> bool:
    return value is MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """One meant difference: where it is (a pattern of its whole path), and what stands there.

    `instead` says that the answers are two different ones: then nothing else in them is compared.
    `asked` is a pattern found in the request.
    """

    rule: str
    why: str
    path: str
    kube: Holds = _anything
    ours: Holds = _anything
    asked: str = ""
    instead: bool = False

    def __str__(self) -> str:
        return f"{self.rule} {self.why}"

    def covers(self, one: Ask, found: Difference) -> bool:
        """Return whether a difference in the answers to a request is this one."""
        return bool(
            re.fullmatch(self.path, found.path)
            and re.search(self.asked, str(one))
            and self.kube(found.kube)
            and self.ours(found.ours)
        )


@dataclass
class Verdict:
    """What was compared, what fell under which entry, and what under none."""

    entries: Sequence[Allowed]
    compared: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)

    def judge(self, one: Ask, kube: Any, ours: Any) -> None:
        """Compare the answers to one request."""
        self.compared += 1
        found = list(differences(kube, ours))
        for entry in self.entries:
            if entry.instead and any(entry.covers(one, each) for each in found):
                self.counts[str(entry)] += 1
                return
        for each in found:
            meant = [e for e in self.entries if not e.instead and e.covers(one, each)]
            if meant:
                self.counts[str(meant[0])] += 1
            else:
                self.unexplained.append(f"{one}\n    {each}")

    def unused(self) -> list[str]:
        """Return the entries that nothing fell under."""
        return [str(entry) for entry in self.entries if not self.counts[str(entry)]]

    def summary(self) -> str:
        """Say how much was compared, and how many differences fell under each entry."""
        lines = [f"{self.compared} requests compared"]
        lines += [f"{self.counts[str(entry)]:6d}  {entry}" for entry in self.entries]
        return "\n".join(lines)


def _is(*values: Any) -> Holds:
    return lambda value: value in values


def _says(pattern: str) -> Holds:
    return lambda value: isinstance(value, str) and re.search(pattern, value) is not None


_METADATA = r".*metadata\."
REQUESTS = (
    # -- other answers ---------------------------------------------------------------------------
    Allowed(
        rule="LW-010",
        why="writes are refused with 405, their bodies unread",
        path="status",
        kube=_is(200, 201, 400, 403, 404, 409, 415, 422),
        ours=_is(405),
        asked=r"^(POST|PUT|PATCH|DELETE) /apis/nodus.dev/v1/.*attempts",
        instead=True,
    ),
    Allowed(
        rule="LW-012",
        why="a path that is none is a Status, not text",
        path="body",
        kube=_is("404 page not found\n"),
        ours=lambda body: (
            isinstance(body, dict) and (body.get("reason"), body.get("details")) == ("NotFound", {})
        ),
        instead=True,
    ),
    Allowed(
        rule="LW-021",
        why="a path that is none is 404 before any right is judged",
        path="status",
        kube=_is(403),
        ours=_is(404),
        asked="as another$",
        instead=True,
    ),
    Allowed(
        rule="LW-014",
        why="an empty segment names nothing; kube takes an empty namespace for all, an empty name "
        "for one",
        path=r"status|body\.message",
        kube=_is(200, 'attempts.nodus.dev "" not found'),
        ours=_is(404, "the server could not find the requested resource"),
        asked=r"/namespaces//attempts|/attempts//",
        instead=True,
    ),
    Allowed(
        rule="LW-014",
        why="a name with a slash names nothing; kube reads what follows as a sub-resource",
        path=r"body\.message",
        kube=_says(r'^attempts.nodus.dev "a" not found$'),
        ours=_is("the server could not find the requested resource"),
        asked=r"a%2Fb",
        instead=True,
    ),
    Allowed(
        rule="LW-012",
        why="no path is a 500 (kube cannot read /watch alone)",
        path="status",
        kube=_is(500),
        ours=_is(404),
        asked=r"^GET /apis/nodus.dev/v1/watch$",
        instead=True,
    ),
    Allowed(
        rule="LW-008",
        why="methods that are none of reading are refused the same on all projects",
        path="status",
        kube=_is(404),
        ours=_is(405),
        asked=r"^(OPTIONS|TRACE) /apis/nodus.dev/v1/attempts$",
        instead=True,
    ),
    Allowed(
        rule="LW-201",
        why="a method that HTTP does not know is a malformed request",
        path="status",
        kube=_is(200, 404, 405),
        ours=_is(400),
        asked=r"^FOO ",
        instead=True,
    ),
    Allowed(
        rule="LW-010",
        why="documents are read by GET and HEAD alone; kube answers any method",
        path="status",
        kube=_is(200),
        ours=_is(405),
        asked=r"^(OPTIONS|TRACE|POST|PUT|PATCH|DELETE) /apis/nodus.dev(/v1)?[? ]?",
        instead=True,
    ),
    Allowed(
        rule="LW-055",
        why="YAML is not served",
        path=r"header\.content-type",
        kube=_is("application/yaml"),
        ours=_is("application/json"),
        asked=r"application/yaml|\*",
        instead=True,
    ),
    Allowed(
        rule="LW-055",
        why="Protobuf is not served, neither for Tables nor for errors",
        path=r"header\.content-type",
        kube=_says(r"^application/vnd.kubernetes.protobuf"),
        ours=_is("application/json"),
        asked=r"application/vnd.kubernetes.protobuf",
        instead=True,
    ),
    Allowed(
        rule="LW-050",
        why="several Accept headers are one list, and a media type is the same in any case",
        path=r"body\.code",
        kube=_is(406),
        asked=r"Accept: APPLICATION|Accept: text/html Accept",
        instead=True,
    ),
    Allowed(
        rule="LW-055",
        why="what is weighed with 0 is not acceptable (RFC 9110); kube takes it last",
        path="status",
        kube=_is(200, 400, 404),
        ours=_is(406),
        asked=r"Accept: application/json;q=0$",
        instead=True,
    ),
    Allowed(
        rule="LW-053",
        why="the form of a list, of one object: 406; kube answers 500",
        path=r"body\.message",
        kube=_is("content is not a list"),
        ours=_says("^you requested PartialObjectMetadataList, but the requested object is not a"),
        instead=True,
    ),
    Allowed(
        rule="LW-102",
        why="a version that is none is a 400, on a get, too; kube answers 500",
        path=r"body\.message",
        kube=_says("^resourceVersion: Invalid value"),
        ours=_says("^invalid resource version: resourceVersion: Invalid value"),
        instead=True,
    ),
    Allowed(
        rule="LW-112",
        why="that a version stands beside a token is told before the token is opened",
        path=r"body\.message",
        kube=_says("^invalid continue token: "),
        ours=_is("specifying resource version is not allowed when using continue"),
        instead=True,
    ),
    Allowed(
        rule="LW-164",
        why="a bad shardSelector is a 400; kube answers 500, in words of its own parser",
        path="status",
        kube=_is(500),
        ours=_is(400),
        asked="shardSelector=",
        instead=True,
    ),
    Allowed(
        rule="AS-089",
        why="a query holds no NUL",
        path=r"body\.message",
        ours=_says("holds a NUL character$"),
        asked="%00",
        instead=True,
    ),
    Allowed(
        rule="LW-007",
        why="HEAD is answered on all that GET is; kube refuses it on /api",
        path="status",
        kube=_is(405),
        ours=_is(200, 406),
        asked="^HEAD /api ",
        instead=True,
    ),
    Allowed(
        rule="LW-109",
        why="a token is good for its own request alone, as LW-116 has it",
        path=r"body\.message",
        kube=lambda value: value is MISSING or value.startswith("The provided continue parameter"),
        ours=_is("invalid continue token: continue key is not valid: checksum"),
        asked=r"continue=@",
        instead=True,
    ),
    # -- parts of an answer ----------------------------------------------------------------------
    Allowed(
        rule="LW-202",
        why="a Status has docs, fix and requestId",
        path=r"body\.(docs|fix|requestId)",
        kube=_missing,
        ours=lambda value: isinstance(value, str) and value != "",
    ),
    Allowed(
        rule="LW-214",
        why="no managedFields",
        path=_METADATA + "managedFields",
        ours=_missing,
    ),
    Allowed(
        rule="LW-214",
        why="generation is 1, as the spec never changes; a definition without a status part "
        "counts every change",
        path=_METADATA + "generation",
        kube=lambda value: isinstance(value, int) and value > 1,
        ours=_is(1),
    ),
    Allowed(
        rule="LW-108",
        why="no continue where nothing is left; kube's lists of custom resources say an empty one",
        path=r"body\.metadata\.continue",
        kube=_is(""),
        ours=_missing,
    ),
    Allowed(
        rule="LW-033",
        why="the verbs are those of reading",
        path=r"body\.(items\[\]\.versions\[\]\.)?resources\[\]\.verbs",
        ours=_is(["get", "list", "watch"]),
    ),
    Allowed(
        rule="LW-012",
        why="a path that is none is a Status, to HEAD, too",
        path=r"header\.content-type",
        kube=_is("text/plain; charset=utf-8"),
        ours=_is("application/json"),
        asked=r"^HEAD ",
    ),
    Allowed(
        rule="LW-008",
        why="the refusal names the method; kube leaves it out",
        path=r"body\.message",
        kube=_is(' is not supported on resources of kind "attempts.nodus.dev"'),
        ours=_says(r'^(options|trace) is not supported on resources of kind "attempts'),
    ),
    Allowed(
        rule="LW-010",
        why="a refused method tells which ones are allowed",
        path=r"header\.allow",
        kube=_missing,
        ours=_is("GET, HEAD"),
    ),
    Allowed(
        rule="LW-055",
        why="the media types of the refusal are ours",
        path=r"body\.message",
        kube=_says(r"^only the following media types are accepted: application/json, "),
        ours=_is("only the following media types are accepted: application/json"),
    ),
    Allowed(
        rule="LW-256",
        why="each column tells what it is, the name's, too",
        path=r".*columnDefinitions\[\]\.description",
        kube=_says(r"^Name must be unique within a namespace"),
        ours=_is("The Attempt's name."),
    ),
    Allowed(
        rule="LW-256",
        why="ages and ranks are texts that we make",
        path=r".*columnDefinitions\[\]\.type",
        kube=_is("date", "integer"),
        ours=_is("string"),
    ),
    Allowed(
        rule="LW-255",
        why="rows of what is done say so",
        path=r".*rows\[\]\.conditions",
        kube=_missing,
        ours=lambda value: value[0]["type"] == "Completed",
    ),
    Allowed(
        rule="LW-256",
        why="a cost has its currency",
        path=r".*rows\[\]\.cells\[\]",
        kube=_says(r"^\d+\.\d{6}$"),
        ours=_says(r"^\$\d+\.\d{6}$"),
    ),
    Allowed(
        rule="LW-256",
        why="a rank has the gang's size",
        path=r".*rows\[\]\.cells\[\]",
        kube=_is(0),
        ours=_is("0/4"),
    ),
    Allowed(
        rule="LW-256",
        why="what an Attempt waits for stands in place of its reason",
        path=r".*rows\[\]\.cells\[\]",
        kube=_is(None),
        ours=_is("(Capacity)"),
    ),
    Allowed(
        rule="LW-109",
        why="tokens are sealed, and their start has no slash in front",
        path=r"body\.metadata\.continue\.(m|start)",
    ),
    Allowed(
        rule="LW-053",
        why="the refusal of a form names the kind; kube names its own Go type",
        path=r"body\.message",
        kube=_says(r"object is a list \(\*unstructured.UnstructuredList\)$"),
        ours=_says(r"object is a list \(AttemptList\)$"),
    ),
    Allowed(
        rule="LW-220",
        why="bytes that are no text are shown as U+FFFD",
        path=r"body\.message",
        kube=_says(r'"\\xff"'),
        ours=_says('"\N{REPLACEMENT CHARACTER}"'),
    ),
    Allowed(
        rule="LW-113",
        why="what makes a token unreadable is not told",
        path=r"body\.message",
        kube=_says(r"^invalid continue token: continue key is not valid: \w+"),
        ours=_says(r": continue key is not valid: (not the text that this|longer than 2048)"),
    ),
    Allowed(
        rule="LW-108",
        why="a token says that more match; kube's, that more may",
        path=r"body\.metadata\.continue",
        kube=lambda value: isinstance(value, dict),
        ours=_missing,
        asked="limit=.*Selector=",
    ),
    Allowed(
        rule="LW-166",
        why="every list of a shard says so; kube drops it on custom resources",
        path=r"body\.metadata\.shardInfo",
        kube=_missing,
        ours=lambda value: value["selector"].startswith("shardRange(object.metadata."),
        asked="shardSelector=",
    ),
    Allowed(
        rule="LW-017",
        why="/api tells no addresses",
        path=r"body\.serverAddressByClientCIDRs",
        ours=_missing,
    ),
)
