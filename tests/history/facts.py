"""What a recorded history holds: requests as they were sent, answers as they came, rows as kept.

Facts only. Nothing here is computed by the product: bodies are bytes of the wire, the log is the
table `changes`, and what a selector or a version means is worked out again in `scope` and `truth`.
A moment is an aware datetime of one clock that never goes back.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

END_OF_INITIAL = "k8s.io/initial-events-end"
EPOCH = "E"
"""The kind of a log row that begins an epoch; it belongs to no object."""

Ending = Literal["clean", "cut", "left", "open"]
"""How a stream ended: by the server, by a broken connection, by its reader, or not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A property that does not hold, with the two facts that cannot both be."""

    rule: str
    where: str
    said: str
    but: str

    def __str__(self) -> str:
        return f"{self.rule} {self.where}: {self.said}; but {self.but}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the log. `doc` has an empty resourceVersion; of a D row it is the last state."""

    rev: int
    kind: str
    tx: int
    at: datetime
    uid: str = ""
    project: str = ""
    name: str = ""
    doc: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A GET as it was sent: path and query."""

    target: str

    @cached_property
    def path(self) -> str:
        return urlsplit(self.target).path

    @cached_property
    def options(self) -> Mapping[str, str]:
        found = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}

    @property
    def version(self) -> str:
        """The resourceVersion asked for; empty if none was."""
        return self.options.get("resourceVersion", "")

    @property
    def wants_state(self) -> bool:
        """Whether a watch begins with the state, as ADDED events (LW-083, LW-120)."""
        told = self.options.get("sendInitialEvents")
        return told in ("true", "1") if told else self.version in ("", "0")

    @property
    def wants_end_of_state(self) -> bool:
        """Whether a bookmark ends those events (LW-138)."""
        bookmarks = self.options.get("allowWatchBookmarks") in ("true", "1")
        return bookmarks and self.wants_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a watch. `body` is the object's bytes, `code` that of an ERROR's Status."""

    type: str
    at: datetime
    body: bytes
    rev: int = 0
    uid: str = ""
    name: str = ""
    ends_state: bool = False
    code: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return self.uid, self.rev

    def __str__(self) -> str:
        return f"{self.type} {self.name or '-'} at {self.rev}"


def event_of(line: bytes, at: datetime) -> Event:
    """Return the event that a line tells; the body is cut out of it, not encoded again."""
    told = json.loads(line)
    obj, metadata = told["object"], told["object"].get("metadata", {})
    head = b'{"type":"%b","object":' % told["type"].encode()
    assert line.startswith(head), line
    assert line.endswith(b"}\n"), line
    if told["type"] == "ERROR":
        return Event(type="ERROR", at=at, body=line[len(head) : -2], code=obj["code"])
    return Event(
        type=told["type"],
        at=at,
        body=line[len(head) : -2],
        rev=int(metadata["resourceVersion"]),
        uid=metadata.get("uid", ""),
        name=metadata.get("name", ""),
        ends_state=metadata.get("annotations", {}).get(END_OF_INITIAL) == "true",
    )


@dataclass(frozen=True, kw_only=True)
class Stream(Request):
    """One watch, from its request to its end. A client's streams follow each other."""

    client: str
    asked: datetime
    events: tuple[Event, ...]
    ending: Ending = "open"
    status: int = 200
    ended: datetime | None = None

    @cached_property
    def changes(self) -> tuple[Event, ...]:
        """The events of objects, the synthetic ones included."""
        return tuple(one for one in self.events if one.type not in ("BOOKMARK", "ERROR"))

    @cached_property
    def last(self) -> int:
        """The newest version that the client has from this stream, 0 for none."""
        return max((one.rev for one in self.events), default=0)

    def __str__(self) -> str:
        return f"{self.client} {self.target}"


@dataclass(frozen=True, kw_only=True)
class Answer(Request):
    """A list or a get with its answer. `accept` is the form that was asked for."""

    client: str
    asked: datetime
    answered: datetime
    body: bytes
    status: int = 200
    accept: str = ""

    @property
    def exact(self) -> bool:
        """Whether one revision and no other is asked for (LW-101)."""
        match = self.options.get("resourceVersionMatch")
        paged = self.options.get("limit", "0") != "0"
        return match == "Exact" or (not match and paged and self.version not in ("", "0"))

    @property
    def goes_on(self) -> bool:
        """Whether it is a later page of a list."""
        return bool(self.options.get("continue"))

    @cached_property
    def decoded(self) -> Any:
        return json.loads(self.body)

    @cached_property
    def version_told(self) -> int:
        return int(self.decoded["metadata"]["resourceVersion"])

    @cached_property
    def continues(self) -> str:
        """The token of the next page; empty on the last."""
        return str(self.decoded["metadata"].get("continue", ""))

    @cached_property
    def items(self) -> tuple["Item", ...]:
        """The objects, of a get the one object; each with its bytes of the body."""
        return items_of(self.body)

    def __str__(self) -> str:
        return f"{self.client} {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An object in an answer."""

    uid: str
    rev: int
    name: str
    body: bytes

    @property
    def key(self) -> tuple[str, int]:
        return self.uid, self.rev

    def __str__(self) -> str:
        return f"{self.name} at {self.rev}"


def items_of(body: bytes) -> tuple[Item, ...]:
    """Cut the objects out of a list, or take a single object whole."""
    text = body.decode()
    told = json.loads(text)
    if "items" not in told:
        return (_item(told, body.strip()),)
    found, decoder = [], json.JSONDecoder()
    at = text.index('"items":[') + len('"items":[')
    for _ in told["items"]:
        one, end = decoder.raw_decode(text, at)
        found.append(_item(one, text[at:end].encode()))
        at = end + 1
    return tuple(found)


def _item(obj: Any, body: bytes) -> Item:
    metadata = obj["metadata"]
    return Item(
        uid=metadata["uid"],
        rev=int(metadata["resourceVersion"]),
        name=metadata["name"],
        body=body,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The newest revision as Postgres told it: committed before `answered`.

    `oldest` is the first revision that the log still promised then; 0 where it was not asked.
    """

    asked: datetime
    answered: datetime
    rev: int
    oldest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A client that read nothing between two moments, its connection left open."""

    client: str
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One row of `cost_segments`."""

    machine: int
    segment: str
    start: datetime
    end: datetime
    covered: bool
    usd: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An Attempt's rows and its published document, of one commit.

    `rendered` is what the rows project to; `machines` are the numbers and states of those that
    it was given.
    """

    uid: str
    name: str
    rev: int
    stored: bytes
    rendered: bytes
    segments: tuple[Segment, ...] = ()
    machines: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All accounts in one view of the database, with the head that it had."""

    head: int
    accounts: tuple[Account, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine as it truly is, and the state that the scheduler keeps of it.

    `alive` is seen where the machine runs (its processes), not asked of the supplier.
    """

    key: str
    attempt: str
    state: str
    alive: bool


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything seen between two moments, and what truly happened meanwhile.

    The log must reach back to before the first answer: its first row is taken for the state's
    beginning. `window` is how far back a watch may start.
    """

    log: tuple[Row, ...]
    streams: tuple[Stream, ...] = ()
    answers: tuple[Answer, ...] = ()
    heads: tuple[Head, ...] = ()
    ledgers: tuple[Ledger, ...] = ()
    machines: tuple[Machine, ...] = ()
    window: timedelta = timedelta(minutes=5)
    kills: tuple[datetime, ...] | None = None
    """When a server or its network was cut off by hand; None where nobody noted it."""

    stops: tuple[Stop, ...] = ()
    isolation: timedelta = timedelta(milliseconds=250)
    """By how much a stopped reader may delay others (H-21)."""

    quiet: bool = False
    """Whether nothing was left to do when the recording ended."""
