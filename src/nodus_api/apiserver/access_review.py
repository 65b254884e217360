"""The bodies of the reviews of oneself, for `kubectl auth can-i` and `whoami` (LW-023).

kubectl sends them as protobuf and does not fall back; the few fields are read by hand.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from nodus_api.metav1.errors import BadRequest, UnsupportedMediaType

T = TypeVar("T")
JSON_TYPE = "application/json"
PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"
_RESOURCE_FIELDS = {
    1: "namespace", 2: "verb", 3: "group", 4: "version", 5: "resource", 6: "subresource", 7: "name",
}  # fmt: skip
_PATH_FIELDS = {1: "path", 2: "verb"}
_NAMESPACE_FIX = "Send spec.namespace: kubectl's `-n PROJECT`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What is asked: a verb on a resource, or on a path."""

    resource: dict[str, str] | None = None
    path: dict[str, str] | None = None


def read_review(content_type: str | None, body: bytes) -> Review:
    """Return what a SelfSubjectAccessReview asks. Raises UnsupportedMediaType or BadRequest."""
    return _read(
        "SelfSubjectAccessReview",
        content_type,
        body,
        from_json=lambda found: _review(
            found["spec"].get("resourceAttributes"), found["spec"].get("nonResourceAttributes")
        ),
        from_protobuf=_from_protobuf,
        fix="Send spec.resourceAttributes or spec.nonResourceAttributes.",
    )


def read_rules_review(content_type: str | None, body: bytes) -> str:
    """Return the namespace of a SelfSubjectRulesReview.

    Raises UnsupportedMediaType or BadRequest, for one without a namespace too, as kube-apiserver.
    """
    namespace = _read(
        "SelfSubjectRulesReview",
        content_type,
        body,
        from_json=lambda found: str(found["spec"].get("namespace") or ""),
        from_protobuf=lambda review: _fields(_fields(review).get(2, b"")).get(1, b"").decode(),
        fix=_NAMESPACE_FIX,
    )
    if not namespace:
        raise BadRequest("no namespace on request", fix=_NAMESPACE_FIX)
    return namespace


def read_user_review(content_type: str | None, body: bytes) -> None:
    """Check the body of a SelfSubjectReview, which asks nothing but who the caller is.

    Raises UnsupportedMediaType or BadRequest.
    """
    _read(
        "SelfSubjectReview",
        content_type,
        body,
        from_json=lambda _: None,
        from_protobuf=lambda _: None,
        fix='Send `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`.',
    )


def _read(
    kind: str,
    content_type: str | None,
    body: bytes,
    *,
    from_json: Callable[[dict[str, Any]], T],
    from_protobuf: Callable[[bytes], T],
    fix: str,
) -> T:
    form = (content_type or JSON_TYPE).partition(";")[0].strip().lower()
    try:
        if form == JSON_TYPE:
            found = orjson.loads(body)
            if not isinstance(found, dict):
                raise ValueError("not a JSON object")
            return from_json(found)
        if form == PROTOBUF_TYPE:
            if not body.startswith(_MAGIC):
                raise ValueError("not a Kubernetes protobuf body")
            return from_protobuf(_fields(body[len(_MAGIC) :]).get(2, b""))
    except (ValueError, KeyError, AttributeError, TypeError, IndexError) as wrong:
        raise BadRequest(f"the {kind} cannot be read: {wrong}", fix=fix) from None
    raise UnsupportedMediaType(accepted=(JSON_TYPE, PROTOBUF_TYPE))


def review_answer(review: Review, *, allowed: bool, reason: str) -> bytes:
    """Return the review with its status."""
    spec: dict[str, Any] = {}
    if review.resource is not None:
        spec["resourceAttributes"] = review.resource
    if review.path is not None:
        spec["nonResourceAttributes"] = review.path
    status: dict[str, Any] = {"allowed": allowed}
    if reason:
        status["reason"] = reason
    return orjson.dumps(
        {
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {},
            "spec": spec,
            "status": status,
        },
        option=orjson.OPT_APPEND_NEWLINE,
    )


def _review(resource: dict[str, Any] | None, path: dict[str, Any] | None) -> Review:
    if (resource is None) is (path is None):
        raise ValueError("give resourceAttributes or nonResourceAttributes, one of them")
    return Review(
        resource=_texts(resource, tuple(_RESOURCE_FIELDS.values()))
        if resource is not None
        else None,
        path=_texts(path, tuple(_PATH_FIELDS.values())) if path is not None else None,
    )


def _texts(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    given = {name: values[name] for name in names if values.get(name)}
    for name, value in given.items():
        if not isinstance(value, str):
            raise ValueError(f"{name} is no text")
    return given


def _from_protobuf(review: bytes) -> Review:
    spec = _fields(_fields(review)[2])
    return _review(
        _named(spec[1], _RESOURCE_FIELDS) if 1 in spec else None,
        _named(spec[2], _PATH_FIELDS) if 2 in spec else None,
    )


def _named(message: bytes, names: dict[int, str]) -> dict[str, str]:
    return {
        names[number]: value.decode()
        for number, value in _fields(message).items()
        if number in names
    }


def _fields(message: bytes) -> dict[int, bytes]:
    """Return the length-delimited fields of a protobuf message; numbers are passed over."""
    fields: dict[int, bytes] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        match key & 7:
            case 0:
                _, at = _varint(message, at)
            case 2:
                length, at = _varint(message, at)
                if at + length > len(message):
                    raise ValueError("a field is cut off")
                fields[key >> 3] = message[at : at + length]
                at += length
            case _:
                raise ValueError("a field of an unknown type")
    return fields


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
