"""Token buckets: how many calls of a kind a supplier is asked for (SC-616).

Moments are monotonic seconds, given by the caller.
"""

from nodus_api.suppliers.supplier import CallRate


class Bucket:
    """Holds up to `burst` tokens, one a call, and gains `per_second`; it begins full."""

    def __init__(self, rate: CallRate) -> None:
        self._rate = rate
        self._tokens = float(rate.burst)
        self._at = 0.0
        """The moment of which `_tokens` tells; ahead of now while the bucket is kept empty."""

    def take(self, wanted: int, now: float) -> int:
        """Take so many tokens, or those that there are; return how many."""
        self._fill(now)
        taken = min(wanted, int(self._tokens))
        self._tokens -= taken
        return taken

    def empty(self, until: float) -> None:
        """Let the tokens go, and gain none before `until`: the supplier asks for a pause."""
        self._tokens = 0.0
        self._at = max(self._at, until)

    def paused(self, now: float) -> float:
        """Return for how many seconds more the supplier asked to be left alone."""
        return max(0.0, self._at - now)

    def next_token(self, now: float) -> float:
        """Return the seconds until there is a token; 0 if there is one."""
        self._fill(now)
        missing = max(0.0, 1.0 - self._tokens)
        return self.paused(now) + missing / self._rate.per_second

    def _fill(self, now: float) -> None:
        if now > self._at:
            gained = (now - self._at) * self._rate.per_second
            self._tokens = min(self._tokens + gained, float(self._rate.burst))
            self._at = now
