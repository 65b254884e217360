"""Health texts and metrics (AS-097, AS-104, AS-105)."""

from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from tests.apiserver.conftest import START, A, N, Replica, replica_of, running
from tests.watchcache.conftest import until

from nodus_api.clock import ManualClock


async def test_all_is_well(replica: Replica) -> None:  # AS-104, LW-039
    await replica.admin.get(N)
    for endpoint in ("/livez", "/readyz", "/healthz"):
        got = await replica.stranger.get(endpoint)
        assert (got.status, got.body) == (200, b"ok")
        assert got.headers["content-type"] == "text/plain; charset=utf-8"
        assert got.headers["x-content-type-options"] == "nosniff"


async def test_the_checks_in_full(replica: Replica) -> None:  # AS-105
    live = await replica.stranger.get("/livez?verbose")
    ready = await replica.stranger.get("/readyz?verbose&exclude=database&exclude=nope")

    assert live.body == (
        b"[+]ping ok\n[+]event-loop ok\n[+]feed-worker ok\n[+]background-tasks ok\n"
        b"livez check passed\n"
    )
    assert ready.body == (
        b"[+]ping ok\n[+]event-loop ok\n[+]feed-worker ok\n[+]background-tasks ok\n"
        b"[+]database excluded: ok\n"
        b"[+]watch-cache-sync ok\n[+]feed-lag ok\n[+]authentication-config ok\n[+]shutdown ok\n"
        b'warn: some health checks cannot be excluded: no matches for "nope"\n'
        b"readyz check passed\n"
    )


async def test_a_cold_replica_is_alive_but_not_ready() -> None:  # AS-096
    replica = replica_of()
    live = await replica.stranger.get("/livez")
    ready = await replica.stranger.get("/readyz")

    assert live.status == 200
    assert ready.status == 500
    assert b"[-]watch-cache-sync failed: reason withheld\n" in ready.body
    assert b"[-]authentication-config failed: reason withheld\n" in ready.body
    assert ready.body.endswith(b"readyz check failed\n")


async def test_an_outage_counts_after_half_a_minute(replica: Replica) -> None:  # AS-105
    await replica.admin.get(N)
    replica.log.away = True
    await replica.admin.get(N)
    await until(lambda: replica.cache.health.cut_off_since is not None)
    await replica.advance(29)
    before = await replica.stranger.get("/readyz")
    await replica.advance(2)
    after = await replica.stranger.get("/readyz")
    one = await replica.admin.get("/readyz/database")
    live = await replica.stranger.get("/livez")

    assert (before.status, after.status, live.status) == (200, 500, 200)
    assert b"[-]database failed: reason withheld\n" in after.body
    assert b"[-]feed-lag failed: reason withheld\n" in after.body
    assert one.body == (
        b"internal server error: the database has been out of reach for more than 30 s\n"
    )


async def test_a_check_that_the_composition_adds() -> None:
    replica = replica_of(checks={"tls-cert": lambda: "it expired yesterday"})
    async with running(replica):
        ready = await replica.stranger.get("/readyz")
        one = await replica.admin.get("/readyz/tls-cert")

    assert b"[-]tls-cert failed: reason withheld\n" in ready.body
    assert one.body == b"internal server error: it expired yesterday\n"


async def test_a_live_check_that_the_composition_adds() -> None:  # AS-105
    replica = replica_of(live_checks={"cert-reloader": lambda: "it stands still"})
    async with running(replica):
        for endpoint in ("livez", "readyz", "healthz"):
            got = await replica.stranger.get(f"/{endpoint}")
            assert b"[-]cert-reloader failed: reason withheld\n" in got.body


async def test_a_background_task_that_crashes_starts_again(
    replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:  # AS-094
    def crash() -> None:
        raise RuntimeError("not foreseen")

    whole, replica.app.access.changed = replica.app.access.changed, crash
    judging = replica.app.background.crashes["rights"]
    for count in range(1, 3):  # it judges once a minute
        await replica.advance(62)
        assert judging.total == count
        assert (await replica.stranger.get("/livez")).status == 200
    replica.app.access.changed = whole
    await replica.advance(62)

    assert judging.total == 2
    assert "a background task crashed and starts again" in caplog.text


async def test_a_task_that_crashes_often_turns_livez_red(replica: Replica) -> None:  # AS-094
    for _ in range(3):
        replica.app.background.crashes["access"].note()
    got = await replica.admin.get("/livez/background-tasks")
    assert (got.status, got.body) == (
        500,
        b"internal server error: crashed three times within a minute: access\n",
    )
    await replica.advance(61)
    assert (await replica.stranger.get("/livez")).status == 200


async def test_one_check_of_an_admin(replica: Replica) -> None:
    got = await replica.admin.get("/livez/ping")

    assert (got.status, got.body) == (200, b"ok")


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    families = text_string_to_metric_families(text.decode())
    for family in families:
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def value(found: Any, name: str, **labels: str) -> float | None:
    for (sample, pairs), number in found.items():
        if sample == name and set(labels.items()) <= set(pairs):
            return float(number)
    return None


async def test_metrics(replica: Replica) -> None:  # AS-097, AS-098
    await replica.admin.get(N)
    await replica.admin.get(A)
    await replica.admin.get(f"{N}/nope")
    await replica.alice.get(A)
    await replica.admin.get("/secret/path")
    async with replica.admin.open("GET", f"{N}?watch=1") as stream:
        await stream.events(12)
        got = await replica.admin.get("/metrics")
    found = samples(got.body)

    assert got.headers["content-type"].startswith("text/plain; version=")
    total = "apiserver_request_total"
    assert value(found, total, verb="LIST", scope="namespace", code="200") == 1
    assert value(found, total, verb="LIST", scope="cluster", code="200") == 1
    assert value(found, total, verb="LIST", scope="cluster", code="403") == 1
    assert value(found, total, verb="GET", scope="resource", code="404", resource="attempts") == 1
    assert value(found, total, verb="GET", resource="", code="404") == 1
    assert value(found, "apiserver_longrunning_requests", verb="WATCH", scope="namespace") == 1
    assert value(found, "apiserver_watch_events_total", resource="attempts") == 12
    assert value(found, "authorization_attempts_total", result="denied") == 1
    assert value(found, "authentication_attempts", result="success") == 7
    assert value(found, "apiserver_watch_cache_events_received_total") == 0
    assert value(found, "nodus_watchcache_attempts") == 15
    assert value(found, "apiserver_watch_cache_resource_version") == replica.rev
    assert value(found, "process_open_fds")
    assert value(
        found, "apiserver_request_duration_seconds_bucket", verb="LIST", le="+Inf"
    ) == 1  # fmt: skip
    text = got.body.decode()
    assert "secret" not in text
    assert "alice" not in text
    assert "example" not in text


async def test_openmetrics_for_those_who_ask(replica: Replica) -> None:  # AS-097
    await replica.admin.get(N)
    got = await replica.admin.get(
        "/metrics", accept="application/openmetrics-text;version=1.0.0;q=0.9,text/plain;q=0.5"
    )

    assert got.headers["content-type"].startswith("application/openmetrics-text")
    families = openmetrics_families(got.body.decode())  # type: ignore[no-untyped-call]  # theirs
    assert any(family.name == "apiserver_request" for family in families)


@pytest.mark.parametrize("late", [0.0, 6.0])
async def test_a_loop_that_is_late_is_told(late: float) -> None:  # AS-105
    replica = replica_of()
    clock = replica.clock
    assert isinstance(clock, ManualClock)
    assert clock.now() == START
    async with running(replica):
        clock._elapsed += late
        await clock.advance(0.1 if late else 0.6)
        await until(lambda: replica.app.lag.seconds >= late - 1)
        got = await replica.stranger.get("/livez")

    assert (got.status == 500) is (late > 5)
