"""What a client's revision means after failovers: storage.md section 8."""

from collections.abc import Sequence
from enum import Enum

from nodus_api.watchcache.source import FeedEpoch

EPOCH_BITS = 44


class Standing(Enum):
    """Whether a revision belongs to the history that counts."""

    VALID = "valid"
    LOST = "lost"  # seen by a client, and never to come: the commit did not survive a failover
    LATER = "later"  # of an epoch that this server does not know


class Epochs:
    """The epochs of an installation, as loaded from `feed_epochs`."""

    def __init__(self, epochs: Sequence[FeedEpoch]) -> None:
        self._by_number = {epoch.epoch: epoch for epoch in epochs}
        self._current = max(self._by_number, default=0)
        self._marker_after = {e.prev_last: e.first_rev for e in epochs if e.prev_last > 0}

    @property
    def current(self) -> int:
        """The newest epoch's number."""
        return self._current

    def standing(self, rev: int) -> Standing:
        """Say whether `rev` counts, whatever the head of the log is."""
        epoch = rev >> EPOCH_BITS
        if epoch > self._current:
            return Standing.LATER
        following = self._by_number.get(epoch + 1)
        if following is not None and rev > following.prev_last:
            return Standing.LOST
        return Standing.VALID

    def moved_up(self, rev: int) -> int:
        """Return `rev`, or the marker of the epoch that it ends: no change lies between."""
        while (marker := self._marker_after.get(rev)) is not None:
            rev = marker
        return rev

    def distance(self, low: int, high: int) -> int:
        """Return how many rows of the log lie above `low` and not above `high`."""
        rows = 0
        while low < high:
            following = self._by_number.get((low >> EPOCH_BITS) + 1)
            if following is None or following.first_rev > high:
                return rows + high - low
            rows += max(following.prev_last - low, 0) + 1  # the marker is a row too
            low = following.first_rev
        return rows

    def prev_last(self, marker: int) -> int | None:
        """Return the revision that the epoch beginning at `marker` follows, None if unknown."""
        found = self._by_number.get(marker >> EPOCH_BITS)
        return found.prev_last if found is not None and found.first_rev == marker else None
