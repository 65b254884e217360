"""Times that suppliers tell, of clocks that may be off (SC-503, SC-615)."""

from datetime import datetime, timedelta

from nodus_api.scheduler.metrics import LoopMetrics

FAR_OFF = timedelta(seconds=5)
"""By so much a told time may lie outside what is possible before it is counted."""


def possible(
    metrics: LoopMetrics,
    told: datetime,
    *,
    of: str,
    now: datetime,
    since: datetime | None = None,
) -> datetime:
    """Return a told time, at most `now` and at least `since`; count it if it is far off (SC-615).

    `of` names the event in the metric.
    """
    at = min(told, now) if since is None else max(min(told, now), since)
    if abs(told - at) > FAR_OFF:
        metrics.skewed.labels(of=of).inc()
    return at
