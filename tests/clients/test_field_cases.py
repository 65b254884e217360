"""Field cases of the area "clients", over real TLS: what broke elsewhere, with the right outcome.

B05 (a client that lost its server asks seldom) is in test_clients.py, with the clients themselves.
"""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.clients.catalog import ALL, HAD, ONE
from tests.clients.conftest import program, ready
from tests.clients.site import Site, until
from tests.clients.writing import ONE as PROJECT

from nodus_api.kernel.vocabulary import Stage

pytestmark = [pytest.mark.conformance, pytest.mark.slow]  # shares the server of test_clients.py

OLD = "/apis/nodus.dev/v1/watch/namespaces/default/attempts"
MANY = 64


def events(site: Site, path: str, count: int, *, user: str = "test") -> list[dict[str, Any]]:
    """Open a watch, and return its first so many events."""
    connection = site.connection(60)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {site.tokens[user]}"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return [json.loads(answer.readline()) for _ in range(count)]
    finally:
        connection.close()


def short(event: dict[str, Any]) -> tuple[str, str, int]:
    metadata = event["object"]["metadata"]
    return event["type"], metadata["name"], int(metadata["resourceVersion"])


def version(site: Site, path: str = ALL) -> int:
    return int(site.json(path)["metadata"]["resourceVersion"])


async def fresh(site: Site) -> tuple[int, str]:
    """Make one Attempt in the first project; return its number and name."""
    (no,) = await site.lives.add(1, PROJECT)
    return no, site.lives.views[no].attempt.name


async def test_a_stream_that_breaks_after_its_state_repeats_nothing(
    site: Site,
) -> None:  # field case B03, LW-134
    """What went after the newest object's last change is told as DELETED, though never shown."""
    await fresh(site)
    count = len(site.json(ALL)["items"])
    state = [short(one) for one in events(site, f"{ALL}?watch=1", count)]
    revs = [rev for _, _, rev in state]

    assert {kind for kind, _, _ in state} == {"ADDED"}
    assert revs == sorted(revs)

    no, name = await fresh(site)
    rev = await site.lives.move([no])
    resumed = [short(one) for one in events(site, f"{ALL}?watch=1&resourceVersion={revs[-1]}", 2)]
    assert resumed == [("ADDED", name, rev - 1), ("MODIFIED", name, rev)]


@pytest.mark.parametrize(
    ("seconds", "status"),
    [
        ("0", 200),
        ("2147483648", 200),
        ("9223372036854775807", 200),
        ("-1", 400),
        ("-2147483648", 400),
        ("9223372036854775808", 400),
        ("1e3", 400),
        ("5s", 400),
        ("", 400),
    ],
)
def test_how_long_a_watch_may_last(
    site: Site, seconds: str, status: int
) -> None:  # field case B08, LW-081, LW-143
    """0 is the server's default: it is still open when it is left."""
    connection = site.connection()
    try:
        connection.request(
            "GET",
            f"{ONE}?watch=1&timeoutSeconds={seconds}",
            headers={"Authorization": f"Bearer {site.tokens['test']}"},
        )
        answer = connection.getresponse()
        assert answer.status == status
        first = json.loads(answer.readline())
        assert first.get("type") == "ADDED" if status == 200 else first["reason"] == "BadRequest"
    finally:
        connection.close()


async def test_one_object_is_watched_by_its_own_path(site: Site) -> None:  # field case B15
    """LW-005, LW-006: the old path, another name beside it, no such name, and a plain get."""
    since = version(site)
    _, other = await fresh(site)
    no, name = await fresh(site)
    rev = await site.lives.move([no])
    path = f"{OLD}/{name}?resourceVersion={since}"

    assert [short(one) for one in events(site, path, 2)] == [
        ("ADDED", name, rev - 1),
        ("MODIFIED", name, rev),
    ]
    status, _, body = site.get(f"{OLD}/{name}?fieldSelector=metadata.name%3D{other}")
    assert (status, json.loads(body)["reason"]) == (400, "BadRequest")
    status, _, body = site.get(f"{OLD}/{name}x?timeoutSeconds=1")
    assert (status, body) == (200, b"")
    status, _, body = site.get(f"{ONE}/{name}?watch=true")
    assert (status, json.loads(body)["kind"]) == (200, "Attempt")


async def test_objects_come_and_go_by_their_phase(site: Site) -> None:  # field case B18, LW-133
    since = version(site)
    no, name = await fresh(site)
    began = await site.lives.go(no, Stage.RUNNING)
    over = await site.lives.move([no])
    proven = await site.lives.move([no])
    await site.lives.retire([no])
    running = f"{ONE}?watch=1&resourceVersion={since}&fieldSelector=status.phase%3DRunning"
    labelled = f"{ONE}?watch=1&resourceVersion={since}&labelSelector=nodus.dev/job%3Dtrain"

    added, deleted = events(site, running, 2)
    assert (short(added), short(deleted)) == (("ADDED", name, began), ("DELETED", name, over))
    assert deleted["object"]["status"]["phase"] == "Running"
    seen = [short(one) for one in events(site, labelled, proven - since + 1)]
    assert [kind for kind, _, _ in seen] == [
        "ADDED",
        *["MODIFIED"] * (proven - since - 1),
        "DELETED",
    ]
    assert [rev for _, _, rev in seen] == list(range(since + 1, proven + 2))


def test_no_right_is_told_before_the_stream(site: Site) -> None:  # field case B20, LW-122, LW-015
    status, _, body = site.get(f"{ONE}?watch=1", user="nobody")
    assert (status, json.loads(body)["kind"], json.loads(body)["reason"]) == (
        403,
        "Status",
        "Forbidden",
    )
    ghost = ONE.replace("default", "ghost")
    status, _, body = site.get(f"{ghost}?watch=1&timeoutSeconds=1")
    assert (status, body) == (200, b"")


async def test_many_streams_of_one_client_all_get_each_event(site: Site) -> None:  # field case B23
    """Lists are answered meanwhile; how fast is for the benchmarks to say."""
    since = version(site)
    nos = await site.lives.add(4, PROJECT)
    path = f"{ALL}?watch=1&resourceVersion={since}"
    with ThreadPoolExecutor(MANY) as threads:
        streams = [threads.submit(events, site, path, 12) for _ in range(MANY)]
        await site.lives.move(nos)
        assert await asyncio.to_thread(version, site) >= since + 8
        await site.lives.move(nos)
        seen = [await asyncio.wrap_future(one) for one in streams]

    due = [short(one) for one in seen[0]]
    assert [rev for _, _, rev in due] == list(range(since + 1, since + 13))
    assert [one for one in seen if [short(event) for event in one] != due] == []


async def test_changes_while_all_was_down_come_on_resuming(site: Site) -> None:  # field case B10
    """LW-216: server and Postgres start again, and versions never go down."""
    since = version(site)
    await site.stop()
    await site.stop_postgres()
    await site.start_postgres()
    nos = await site.lives.add(5, PROJECT)
    await site.lives.move(nos)
    await site.start()

    assert version(site) >= since + 10
    seen = [short(one) for one in events(site, f"{ALL}?watch=1&resourceVersion={since}", 10)]
    assert [rev for _, _, rev in seen] == list(range(since + 1, since + 11))


async def test_a_first_list_that_fails_is_tried_again(site: Site) -> None:  # field case B13, LW-199
    """kopf, lightkube and the dynamic Python client start while Postgres is away."""
    names = [name for name in ("kopf", "lightkube", "official") if name in HAD]
    if not names:
        pytest.skip("none of the three could be had: see tests/programs.py")
    await site.stop_postgres()
    started = [program(site, name, "late") for name in names]
    try:
        await until(lambda: site.get(ONE)[0] == 503, lambda: "Postgres is away")
        status, headers, body = site.get(ONE)
        told = json.loads(body)
        assert (status, told["reason"]) == (503, "ServiceUnavailable")
        assert int(headers["retry-after"]) == told["details"]["retryAfterSeconds"] > 0
        for one in started:
            await one.start()
        await until(lambda: len(site.requests("late")) >= len(names), lambda: "they are refused")
        await site.start_postgres()
        for one in started:
            await ready(one, HAD[one.name])
    finally:
        await site.start_postgres()
        await asyncio.gather(*(one.stop() for one in started))
    assert [one.name for one in started if one.code] == []
