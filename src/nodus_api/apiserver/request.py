"""What a request is about: its path read once, by hand, before anything else (AS-083).

Kubernetes' own grammar of paths: slashes at the end do not matter, a segment never holds a slash
or a percent sign, and an empty one in front or in the middle names nothing (LW-013, LW-014).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from nodus_api.apiserver.identity import User
from nodus_api.attempts.resource import ATTEMPTS, GROUP, RESOURCE, VERSION
from nodus_api.metav1 import fields
from nodus_api.metav1.errors import BadRequest, GroupResource
from nodus_api.metav1.fields import NAME
from nodus_api.metav1.list_options import MAX_SELECTOR_BYTES
from nodus_api.metav1.namespaces import NAMESPACES
from nodus_api.metav1.query import boolean

MOST_ID = 64
_PLAIN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

Scope = dict[str, Any]
"""An ASGI connection scope."""


class Target(Enum):
    """What kind of thing a path names."""

    COLLECTION = "collection"
    OBJECT = "object"
    PATH = "path"  # not a resource: discovery, health, metrics, documents
    NOTHING = "nothing"  # a path that this server does not have


_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_COLLECTION_METRIC_SCOPES = {True: "namespace", False: "cluster"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """The attributes of a request (AS-048)."""

    verb: str
    target: Target
    path: str
    resource: GroupResource | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    """What a path below an object names; this server has none (LW-011)."""
    watch_path: bool = False
    """The deprecated `/watch/` form, which forces `watch` (LW-006)."""

    @property
    def reads(self) -> bool:
        """Whether the verb is one that a resource has."""
        return self.verb in ("get", "list", "watch")

    @property
    def project(self) -> str | None:
        """The project of a list or watch, None for all."""
        return self.namespace or None

    @property
    def metric_scope(self) -> str:
        """The label `scope` of the request metrics (AS-097)."""
        if self.resource is None:
            return ""
        if self.target is Target.OBJECT:
            return "resource"
        return _COLLECTION_METRIC_SCOPES[bool(self.namespace)]


@dataclass(slots=True, kw_only=True)
class Request:
    """One request on its way through the chain."""

    scope: Scope
    info: RequestInfo
    query: Mapping[str, str]
    audit_id: str
    request_id: str
    received: float
    user: User | None = None
    headers: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def head(self) -> bool:
        """Whether only the headers are wanted (LW-007)."""
        return bool(self.scope["method"] == "HEAD")

    def header(self, name: bytes) -> str | None:
        """Return a header's value; several of one name are joined by commas."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


def joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return headers by lower-case name; several of one name are joined by commas."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(value)
    # in one go: 256 KiB of one name, put together one by one, would take half a second
    return {name: b",".join(values) for name, values in found.items()}


def ids_of(headers: Iterable[tuple[bytes, bytes]], new_id: Callable[[], UUID]) -> tuple[str, str]:
    """Return the Audit-Id to echo and the requestId of a Status (LW-059, AS-100)."""
    given = next((v for k, v in headers if k == b"audit-id"), b"").decode("latin-1")
    if not given:
        made = str(new_id())
        return made, made
    cut = given[:MOST_ID]
    return given, cut if _PLAIN_ID.fullmatch(cut) else str(new_id())


def read_request_info(method: str, raw_path: bytes, query: Mapping[str, str]) -> RequestInfo:
    """Return what a request is about; a path that names nothing has target NOTHING."""
    segments = _segments(raw_path)
    if segments is None:
        return RequestInfo(verb=_verb_of_path(method), target=Target.NOTHING, path="")
    path = "/" + "/".join(segments)
    match segments:
        case ["apis", group, version, *rest] if (group, version) == (GROUP, VERSION) and rest:
            return _resource(method, path, rest, query)
        case ["api", "v1", "namespaces"]:
            return _collection(method, path, NAMESPACES, "", query)
        case ["api", "v1", "watch", "namespaces"]:
            return _collection(method, path, NAMESPACES, "", query, watch_path=True)
        case ["api", "v1", "watch", "namespaces", name]:
            return _collection(method, path, NAMESPACES, "", query, watch_path=True, name=name)
        case ["api", "v1", "namespaces", name]:
            return _object(method, path, NAMESPACES, name, name)
        case _:
            return RequestInfo(verb=_verb_of_path(method), target=Target.PATH, path=path)


def _segments(raw_path: bytes) -> list[str] | None:
    """Return the decoded segments of a path, None if it has one that names nothing (LW-014)."""
    if raw_path.startswith(b"//"):
        return None
    trimmed = raw_path.decode("latin-1").strip("/")
    if not trimmed:
        return []
    segments = [unquote(segment) for segment in trimmed.split("/")]
    if any(segment == "" or "/" in segment for segment in segments):
        return None
    if any(segment in (".", "..") or "%" in segment for segment in segments[:-1]):
        return None  # as the last, it is a name that no object can have
    return segments


def _resource(method: str, path: str, rest: list[str], query: Mapping[str, str]) -> RequestInfo:
    watch_path = rest[0] == "watch" and len(rest) > 1
    match rest[1:] if watch_path else rest:
        case [resource] if resource == RESOURCE:
            return _collection(method, path, ATTEMPTS, "", query, watch_path=watch_path)
        case ["namespaces", project, resource] if resource == RESOURCE:
            return _collection(method, path, ATTEMPTS, project, query, watch_path=watch_path)
        case ["namespaces", project, resource, name] if resource == RESOURCE:
            if watch_path:
                return _collection(
                    method, path, ATTEMPTS, project, query, watch_path=True, name=name
                )
            return _object(method, path, ATTEMPTS, project, name)
        case ["namespaces", project, resource, name, *below] if resource == RESOURCE:
            # any sub-resource: 404 of the object, whatever the method (LW-011)
            return RequestInfo(
                verb="get",
                target=Target.NOTHING,
                path=path,
                resource=ATTEMPTS,
                namespace=project,
                name=name,
                subresource="/".join(below),
            )
        case _:
            return RequestInfo(verb=_verb_of_path(method), target=Target.NOTHING, path=path)


def _collection(
    method: str,
    path: str,
    resource: GroupResource,
    namespace: str,
    query: Mapping[str, str],
    *,
    watch_path: bool = False,
    name: str = "",
) -> RequestInfo:
    if method in ("GET", "HEAD"):
        watches = method == "GET" and (watch_path or boolean(query, "watch") is True)
        verb = "watch" if watches else "list"
    else:
        verb = "deletecollection" if method == "DELETE" else _WRITES.get(method, method.lower())
    return RequestInfo(
        verb=verb,
        target=Target.COLLECTION,
        path=path,
        resource=resource,
        namespace=namespace,
        name=name or _selected_name(query),
        watch_path=watch_path,
    )


def _object(
    method: str, path: str, resource: GroupResource, namespace: str, name: str
) -> RequestInfo:
    verbs = {"GET": "get", "HEAD": "get", "DELETE": "delete"} | _WRITES
    return RequestInfo(
        verb=verbs.get(method, method.lower()),
        target=Target.OBJECT,
        path=path,
        resource=resource,
        namespace=namespace,
        name=name,
    )


def _verb_of_path(method: str) -> str:
    return "get" if method in ("GET", "HEAD") else method.lower()


def _selected_name(query: Mapping[str, str]) -> str:
    """Return the name that a field selector pins, for authorisation (AS-048).

    Empty for a selector that cannot be read, which is refused later (LW-082), and for a value that
    is no segment of a path: kube-apiserver takes neither for a name.
    """
    text = query.get("fieldSelector", "")
    if NAME not in text or len(text) > MAX_SELECTOR_BYTES:
        return ""
    try:
        name = fields.parse(text).exact(NAME) or ""
    except BadRequest:
        return ""
    return "" if name in (".", "..") or "/" in name or "%" in name else name
