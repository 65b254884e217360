"""Counters as plain numbers, shown to Prometheus by one collector (AS-097, AS-098).

Label values come from the router, never from a URL; users and projects are never labels.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from nodus_api.apiserver.request import RequestInfo
from nodus_api.attempts import resource
from nodus_api.metav1.errors import GroupResource
from nodus_api.watchcache import AttemptCache
from nodus_api.watchcache.heartbeat import Heartbeat

_DURATIONS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30,
    45, 60,
)  # fmt: skip
_SLI_DURATIONS = _DURATIONS[2:]
_RESPONSE_SIZES = tuple(1000.0 * 10**at for at in range(7))
_EVENT_SIZES = tuple(1024.0 * 2**at for at in range(8))

_VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
    "post": "POST",
    "put": "PUT",
}
_REQUEST = ("verb", "group", "version", "resource", "subresource", "scope", "component")
_RESOURCE = ("group", "resource")
_WATCHED = ("group", "version", "resource")
_ATTEMPTS = (resource.GROUP, resource.RESOURCE)

RequestLabels = tuple[str, str, str, str, str, str, str]


class Histogram:
    """Counts by upper bound, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` rise."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Add what was counted to a family, cumulated."""
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), total))
        family.add_metric(list(labels), buckets, self._sum)


class Metrics:
    """All numbers of one replica's HTTP side."""

    def __init__(self) -> None:
        self.requests: dict[tuple[RequestLabels, int], int] = {}
        self.durations: dict[RequestLabels, Histogram] = {}
        self.sli_durations: dict[RequestLabels, Histogram] = {}
        self.sizes: dict[RequestLabels, Histogram] = {}
        self.long_running: dict[RequestLabels, int] = {}
        self.watch_event_counts: dict[GroupResource, int] = {}
        self.watch_event_sizes: dict[GroupResource, Histogram] = {}
        self.terminated_watchers = 0
        self.aborts = 0
        self.terminations: dict[str, int] = {}
        self.authentications: dict[str, int] = {}
        self.authorizations: dict[str, int] = {}
        self.in_flight_now: Callable[[], int] = lambda: 0
        self.consistency_checks: Mapping[str, int] = {}

    def request(self, info: RequestInfo, code: int, seconds: float, size: int) -> None:
        """Count a finished request."""
        labels = labels_of(info)
        key = (labels, code)
        self.requests[key] = self.requests.get(key, 0) + 1
        if info.verb != "watch":
            self._observe(self.durations, labels, _DURATIONS, seconds)
            self._observe(self.sli_durations, labels, _SLI_DURATIONS, seconds)
            self._observe(self.sizes, labels, _RESPONSE_SIZES, size)

    def watch_events(self, of: GroupResource, lines: Sequence[bytes]) -> None:
        """Count events sent to one watcher."""
        self.watch_event_counts[of] = self.watch_event_counts.get(of, 0) + len(lines)
        sizes = self.watch_event_sizes.setdefault(of, Histogram(_EVENT_SIZES))
        for line in lines:
            sizes.observe(len(line))

    def running(self, info: RequestInfo, change: int) -> None:
        """Note that a watch began or ended."""
        labels = labels_of(info)
        self.long_running[labels] = self.long_running.get(labels, 0) + change

    def authentication(self, result: str) -> None:
        """Count an authentication: success, failure or error."""
        self.authentications[result] = self.authentications.get(result, 0) + 1

    def authorization(self, result: str) -> None:
        """Count an authorisation: allowed or denied."""
        self.authorizations[result] = self.authorizations.get(result, 0) + 1

    def termination(self, code: int) -> None:
        """Count a request that was refused to protect the server."""
        self.terminations[str(code)] = self.terminations.get(str(code), 0) + 1

    @staticmethod
    def _observe(
        table: dict[RequestLabels, Histogram],
        labels: RequestLabels,
        bounds: Sequence[float],
        value: float,
    ) -> None:
        found = table.get(labels)
        if found is None:
            found = table[labels] = Histogram(bounds)
        found.observe(value)


def labels_of(info: RequestInfo) -> RequestLabels:
    """Return the labels of a request; a path that names nothing has none (AS-098)."""
    verb = _VERBS.get(info.verb, "OTHER")
    if info.resource is None:
        return (verb, "", "", "", "", "", "apiserver")
    return (
        verb,
        info.resource.group,
        "v1",
        info.resource.resource,
        "",
        info.metric_scope,
        "apiserver",
    )


class MetricsCollector(Collector):
    """Shows the numbers to Prometheus when it asks."""

    def __init__(self, metrics: Metrics, cache_facts: Callable[[], dict[str, float]]) -> None:
        """`cache_facts` returns the numbers of the watch cache by their metric's name."""
        self._metrics = metrics
        self._cache_facts = cache_facts

    def collect(self) -> Iterator[Metric]:
        """Give all families."""
        yield from self._of_requests()
        yield from self._of_watches()
        yield from self._of_access()
        yield from self._of_cache()

    def _of_requests(self) -> Iterator[Metric]:
        counted = CounterMetricFamily(
            "apiserver_request", "Requests by outcome.", labels=(*_REQUEST, "dry_run", "code")
        )
        for (labels, code), count in self._metrics.requests.items():
            counted.add_metric([*labels, "", str(code)], count)
        yield counted
        for name, table in (
            ("apiserver_request_duration_seconds", self._metrics.durations),
            ("apiserver_request_sli_duration_seconds", self._metrics.sli_durations),
            ("apiserver_response_sizes", self._metrics.sizes),
        ):
            family = HistogramMetricFamily(name, name.replace("_", " "), labels=_REQUEST)
            for labels, histogram in table.items():
                histogram.add_to(family, labels)
            yield family
        inflight = GaugeMetricFamily(
            "apiserver_current_inflight_requests",
            "Requests being served.",
            labels=("request_kind",),
        )
        inflight.add_metric(["readOnly"], self._metrics.in_flight_now())
        inflight.add_metric(["mutating"], 0)
        yield inflight
        yield CounterMetricFamily(
            "apiserver_request_aborts", "Requests cut off by an error.", self._metrics.aborts
        )
        refused = CounterMetricFamily(
            "apiserver_request_terminations",
            "Requests refused in self-defence.",
            labels=("code",),
        )
        for refused_code, count in self._metrics.terminations.items():
            refused.add_metric([refused_code], count)
        yield refused

    def _of_watches(self) -> Iterator[Metric]:
        running = GaugeMetricFamily(
            "apiserver_longrunning_requests", "Watches being served.", labels=_REQUEST
        )
        for labels, count in self._metrics.long_running.items():
            running.add_metric(list(labels), count)
        yield running
        events = CounterMetricFamily(
            "apiserver_watch_events", "Events sent to watchers.", labels=_WATCHED
        )
        sizes = HistogramMetricFamily(
            "apiserver_watch_events_sizes", "Bytes of events sent.", labels=_WATCHED
        )
        for of, count in self._metrics.watch_event_counts.items():
            events.add_metric([of.group, "v1", of.resource], count)
            self._metrics.watch_event_sizes[of].add_to(sizes, [of.group, "v1", of.resource])
        yield events
        yield sizes
        ended = CounterMetricFamily(
            "apiserver_terminated_watchers", "Watchers cut off as stuck.", labels=_RESOURCE
        )
        ended.add_metric(list(_ATTEMPTS), self._metrics.terminated_watchers)
        yield ended

    def _of_access(self) -> Iterator[Metric]:
        # Kubernetes' name has no _total, which a counter's would get here
        tried = UnknownMetricFamily(
            "authentication_attempts", "Authentications by result.", labels=("result",)
        )
        for result, count in self._metrics.authentications.items():
            tried.add_metric([result], count)
        yield tried
        judged = CounterMetricFamily(
            "authorization_attempts", "Authorisations by result.", labels=("result",)
        )
        for result, count in self._metrics.authorizations.items():
            judged.add_metric([result], count)
        yield judged

    def _of_cache(self) -> Iterator[Metric]:
        compared = CounterMetricFamily(
            "nodus_consistency_checks",
            "Comparisons of the watch cache with the database by result; alert on mismatch.",
            labels=("result",),
        )
        for result, count in self._metrics.consistency_checks.items():
            compared.add_metric([result], count)
        yield compared
        for name, value in self._cache_facts().items():
            if name.endswith("_total"):
                counter = CounterMetricFamily(name, name.replace("_", " "), labels=_RESOURCE)
                counter.add_metric(list(_ATTEMPTS), value)
                yield counter
            elif name.startswith("apiserver_"):
                gauge = GaugeMetricFamily(name, name.replace("_", " "), labels=_RESOURCE)
                gauge.add_metric(list(_ATTEMPTS), value)
                yield gauge
            else:
                yield GaugeMetricFamily(name, name.replace("_", " "), value)


def cache_facts(cache: AttemptCache) -> dict[str, float]:
    """Return the numbers of the watch cache, by the name of their metric."""
    health = cache.health
    return {
        "apiserver_watch_cache_resource_version": cache.position,
        "apiserver_watch_cache_capacity": cache.history_size,
        "apiserver_watch_cache_events_received_total": health.received,
        "nodus_watchcache_attempts": cache.size,
        "nodus_watchcache_watchers": len(cache.watchers),
        "nodus_watchcache_behind_revisions": max(health.head - cache.position, 0),
        "nodus_watchcache_seconds_since_equal": health.seconds_since_equal,
        "nodus_watchcache_connected": float(health.connected),
        "nodus_watchcache_reloads_total": health.reloads,
        "nodus_watchcache_gap_faults_total": health.faults,
    }


def heartbeat_facts(heartbeat: Heartbeat | None) -> dict[str, float]:
    """Return the numbers of the leader's heartbeat, none before it was read."""
    if heartbeat is None or heartbeat.seconds is None:
        return {}
    return {
        "nodus_leader_heartbeat_age_seconds": heartbeat.seconds,
        "nodus_leader_silent": float(heartbeat.silent),
    }


def exposition(registry: CollectorRegistry, accept: str | None) -> tuple[bytes, str]:
    """Return the metrics as text and its content type: OpenMetrics where it is accepted."""
    encoder, content_type = choose_encoder(accept or "")
    return encoder(registry), content_type
