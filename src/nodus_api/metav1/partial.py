"""An object's metadata alone (LW-053), and how lists of every form begin and end."""

import orjson

from nodus_api.metav1.objects import ListMeta

LIST_END = b"]}\n"
"""What closes a list or a Table that `list_head` or `table.head` opened."""


def partial_object(metadata: bytes, *, api_version: str = "meta.k8s.io/v1") -> bytes:
    """Return a PartialObjectMetadata around the bytes of an object's metadata."""
    return b'{"kind":"PartialObjectMetadata","apiVersion":"%b","metadata":%b}' % (
        api_version.encode(),
        metadata,
    )


def list_head(kind: str, api_version: str, metadata: ListMeta) -> bytes:
    """Return the start of a list; items joined by commas and LIST_END follow (LW-107)."""
    return b'{"kind":"%b","apiVersion":"%b","metadata":%b,"items":[' % (
        kind.encode(),
        api_version.encode(),
        orjson.dumps(metadata.to_wire()),
    )


def indented(body: bytes) -> bytes:
    """Return a compact JSON body with two-space indents, one newline at its end (LW-019)."""
    return orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
