"""What is known of the other end of a connection; the one door to it (AS-026)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STATE_KEY = "nodus.peer"


def _nothing() -> None:
    """Do nothing: this server shows no connection."""


def _unknown() -> int | None:
    """Tell nothing: this server shows no connection."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A connection's other end.

    `abort` closes the connection at once, without a clean end of what is being sent.
    `begin_stream` readies it for an answer that may stand still: the kernel holds little of what is
    sent, and the other end's leaving is noticed even if it has asked for something more.
    `acknowledged` returns how many bytes the other end has taken, None where that is not known.
    """

    address: str
    abort: Callable[[], None] = _nothing
    begin_stream: Callable[[], None] = _nothing
    acknowledged: Callable[[], int | None] = _unknown


def peer_of(scope: dict[str, Any]) -> Peer:
    """Return the peer of a request, as our protocol class put it into the scope."""
    found = scope.get("state", {}).get(STATE_KEY)
    if isinstance(found, Peer):
        return found
    client = scope.get("client")
    return Peer(address=client[0] if client else "")
