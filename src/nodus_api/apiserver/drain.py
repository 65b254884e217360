"""The gate that a stopping server closes (AS-095, LW-147)."""

from nodus_api.apiserver import paths
from nodus_api.metav1.errors import TooManyRequests


class Drain:
    """`draining` from the signal on; `refusing` once the delay is over."""

    def __init__(self) -> None:
        self.draining = False
        self.refusing = False

    def admit(self, path: str) -> None:
        """Raise the 429 of a stopping server, but for health and metrics."""
        if self.refusing and path != paths.METRICS and path not in paths.HEALTH:
            raise TooManyRequests.shutting_down()
