"""The differences that are meant: each with the rule of the specification that says so.

An entry that matches nothing fails the tests, so none of them outlives its difference.
"""

from tests.differential.asking import MISSING
from tests.differential.verdict import Allowed, is_one_of, missing, says

_COLUMN = r"(.*columnDefinitions|columns)\[\]\."
_METADATA = r".*metadata\."
SHARED = (
    Allowed(
        rule="LW-059",
        why="every answer says what it varies by, and that its type is not to be guessed",
        path=r"header\.(vary|x-content-type-options)",
        kube=missing,
        ours=is_one_of("Accept, Accept-Encoding", "nosniff"),
    ),
    Allowed(
        rule="LW-019",
        why="refusals of a form, or in another than was asked for, are indented as any body is; "
        "kube's always",
        path="layout",
        kube=is_one_of((True, 0)),
        ours=is_one_of((False, 1)),
        asked=" Accept: ",
    ),
    Allowed(
        rule="LW-055",
        why="Protobuf is not served, neither for Tables nor for errors",
        path=r"header\.content-type",
        kube=says(r"^application/vnd.kubernetes.protobuf"),
        ours=is_one_of("application/json"),
        asked=r"application/vnd.kubernetes.protobuf",
        instead=True,
    ),
    Allowed(
        rule="LW-102",
        why="a version that is none is a 400, on a get, too; kube answers 500",
        path=r"body\.message",
        kube=says("^resourceVersion: Invalid value"),
        ours=says("^invalid resource version: resourceVersion: Invalid value"),
        instead=True,
    ),
    Allowed(
        rule="LW-164",
        why="a bad shardSelector is a 400; kube answers 500",
        path=r"status|body\.(code|reason)",
        kube=is_one_of(500, MISSING),
        ours=is_one_of(400, "BadRequest"),
        asked="shardSelector=",
    ),
    Allowed(
        rule="LW-164",
        why="what cannot be parsed is said in our words; kube's are those of a parser of CEL",
        path=r"body\.message",
        kube=says(
            r"^invalid shard selector: .*(expression kind \d|mismatched input|got int64|\"!_\""
            r"|exactly 3 arguments, got 2$)"
        ),
        ours=says("^invalid shard selector: "),
        asked="shardSelector=",
    ),
    Allowed(
        rule="LW-202",
        why="a Status has docs, fix and requestId",
        path=r"(body|(state|changes)\[\]\.object)\.(docs|fix|requestId)",
        kube=missing,
        ours=lambda value: isinstance(value, str) and value != "",
    ),
    Allowed(
        rule="LW-214",
        why="no managedFields",
        path=_METADATA + "managedFields",
        ours=missing,
    ),
    Allowed(
        rule="LW-214",
        why="generation is 1, as the spec never changes; a definition without a status part "
        "counts every change",
        path=_METADATA + "generation",
        kube=lambda value: isinstance(value, int) and value > 1,
        ours=is_one_of(1),
    ),
    Allowed(
        rule="LW-055",
        why="the media types of the refusal are ours",
        path=r"body\.message",
        kube=says(r"^only the following media types are accepted: application/json, "),
        ours=is_one_of("only the following media types are accepted: application/json"),
    ),
    Allowed(
        rule="LW-256",
        why="each column tells what it is, the name's, too",
        path=_COLUMN + "description",
        kube=says(r"^Name must be unique within a namespace"),
        ours=is_one_of("The Attempt's name."),
    ),
    Allowed(
        rule="LW-256",
        why="ages and ranks are texts that we make",
        path=_COLUMN + "type",
        kube=is_one_of("date", "integer"),
        ours=is_one_of("string"),
    ),
    Allowed(
        rule="LW-255",
        why="rows of what is done say so",
        path=r".*rows\[\]\.conditions",
        kube=missing,
        ours=lambda value: value[0]["type"] == "Completed",
    ),
    Allowed(
        rule="LW-256",
        why="a cost has its currency",
        path=r".*rows\[\]\.cells\[\]",
        kube=says(r"^\d+\.\d{6}$"),
        ours=says(r"^\$\d+\.\d{6}$"),
    ),
    Allowed(
        rule="LW-256",
        why="a rank has the gang's size",
        path=r".*rows\[\]\.cells\[\]",
        kube=is_one_of(0),
        ours=is_one_of("0/4"),
    ),
    Allowed(
        rule="LW-256",
        why="what an Attempt waits for stands in place of its reason",
        path=r".*rows\[\]\.cells\[\]",
        kube=is_one_of(None),
        ours=is_one_of("(Capacity)"),
    ),
)
WATCHES = (
    *SHARED,
    Allowed(
        rule="LW-053",
        why="a watch of lists of metadata is one of metadata; kube ends it at its first event",
        path="end",
        kube=is_one_of("clean"),
        ours=missing,
        asked="as=PartialObjectMetadataList",
        instead=True,
    ),
    Allowed(
        rule="LW-143",
        why="a watch does not last less than no time: 400; kube ends it at once",
        path="status",
        kube=is_one_of(200),
        ours=is_one_of(400),
        asked="timeoutSeconds=-1",
        instead=True,
    ),
    Allowed(
        rule="LW-134",
        why="the state comes in the order of its versions; kube's comes in that of its names",
        path="order of the state",
        kube=lambda order: [name for _, name in order] == sorted(name for _, name in order),
        ours=lambda order: list(order) == sorted(order),
    ),
)
