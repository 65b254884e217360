"""Reading a resourceVersion parameter (LW-102)."""

from nodus_api.metav1.errors import BadRequest
from nodus_api.metav1.golang import parse_uint64, quote


def parse_resource_version(text: str) -> int:
    """Return the version as a number; empty is 0.

    Raises BadRequest, on lists, gets and watches alike (LW-102 [D]).
    """
    if not text:
        return 0
    try:
        return parse_uint64(text)
    except ValueError as wrong:
        raise BadRequest(
            f"invalid resource version: resourceVersion: Invalid value: {quote(text)}: {wrong}",
            fix="Use metadata.resourceVersion of a list, an object or a watch event unchanged, or "
            "leave the parameter out.",
        ) from None
