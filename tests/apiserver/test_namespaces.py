"""Projects as namespaces: what kubectl, kubens and kopf ask for (LW-016)."""

import asyncio
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from tests.apiserver.conftest import START, Replica, T, names
from tests.watchcache.conftest import until

from nodus_api.metav1.shards import hash_of
from nodus_api.tasks import spawn
from nodus_api.watchcache.freshness import WAIT_SECONDS

NS = "/api/v1/namespaces"


def body(got: Any) -> Any:
    return orjson.loads(got.body)


async def changed(replica: Replica) -> None:
    await until(lambda: replica.app.access.view.rev == len(replica.tables.log))  # type: ignore[union-attr]


async def test_a_project_is_a_namespace(replica: Replica) -> None:
    got = await replica.alice.get(f"{NS}/example")

    assert body(got) == {
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {
            "name": "example",
            "uid": "00000000-0000-0000-0000-000000000003",
            "creationTimestamp": "2025-12-31T12:00:00Z",
            "labels": {"kubernetes.io/metadata.name": "example"},
            "resourceVersion": "3",
        },
        "status": {"phase": "Active"},
    }


@pytest.mark.parametrize("name", ["other", "ghost"])
async def test_what_is_not_open_is_forbidden(replica: Replica, name: str) -> None:  # AS-057
    got = await replica.alice.get(f"{NS}/{name}")

    assert got.status == 403
    assert body(got)["message"] == (
        f'namespaces "{name}" is forbidden: User "alice" cannot get resource "namespaces" in API '
        f'group "" in the namespace "{name}"'
    )


async def test_an_admin_is_told_what_is_missing(replica: Replica) -> None:
    got = await replica.admin.get(f"{NS}/ghost")

    assert (got.status, body(got)["message"]) == (404, 'namespaces "ghost" not found')


async def test_the_list_holds_what_the_caller_may_see(replica: Replica) -> None:
    mine = await replica.alice.get(NS)
    all_of_them = await replica.admin.get(NS)

    assert names(mine.body) == ["example"]
    assert names(all_of_them.body) == ["example", "other"]
    assert body(mine)["metadata"]["resourceVersion"] == str(len(replica.tables.log))


async def test_a_table_of_namespaces(replica: Replica) -> None:
    table = body(await replica.admin.get(NS, accept=T))

    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Status", "Age"]
    assert [row["cells"] for row in table["rows"]] == [
        ["example", "Active", "24h"],
        ["other", "Active", "24h"],
    ]


async def test_pages_and_selectors(replica: Replica) -> None:
    first = body(await replica.admin.get(f"{NS}?limit=1"))
    rest = body(await replica.admin.get(f"{NS}?limit=1&continue={first['metadata']['continue']}"))
    one = await replica.admin.get(f"{NS}?fieldSelector=metadata.name%3Dother")
    none = await replica.admin.get(f"{NS}?labelSelector=a%3Db")
    exact = await replica.admin.get(
        f"{NS}?resourceVersion={len(replica.tables.log)}&resourceVersionMatch=Exact"
    )

    assert first["metadata"]["remainingItemCount"] == 1
    assert [i["metadata"]["name"] for i in first["items"] + rest["items"]] == ["example", "other"]
    assert "continue" not in rest["metadata"]
    assert (names(one.body), names(none.body)) == (["other"], [])
    assert names(exact.body) == ["example", "other"]


async def test_an_old_state_shows_nothing_that_is_closed_now(
    replica: Replica,
) -> None:  # LW-016: rights are of now, the state is that of the revision
    replica.tables.project("mine", START)
    replica.tables.member("mine", "user", "alice")
    await changed(replica)
    then = len(replica.tables.log)
    replica.tables.remove_member("example", "user", "alice")
    replica.tables.member("other", "user", "alice")
    await changed(replica)
    exact = f"{NS}?resourceVersion={then}&resourceVersionMatch=Exact"
    paged = f"{NS}?resourceVersion={then}&limit=5"

    for query in (exact, paged):
        got = await replica.alice.get(query)
        assert names(got.body) == ["mine"]
        assert body(got)["metadata"]["resourceVersion"] == str(then)
    assert names((await replica.admin.get(exact)).body) == ["example", "mine", "other"]
    assert names((await replica.alice.get(NS)).body) == ["mine", "other"]
    async with replica.alice.open("GET", f"{NS}?watch=1&resourceVersion={then}") as stream:
        went, came = await stream.events(2)
    assert (went["type"], went["object"]["metadata"]["name"]) == ("DELETED", "example")
    assert (came["type"], came["object"]["metadata"]["name"]) == ("ADDED", "other")


async def test_a_page_of_an_old_state_shows_nothing_that_is_closed_now(
    replica: Replica,
) -> None:  # LW-016, LW-110
    for name in ("one", "two"):
        replica.tables.project(name, START)
        replica.tables.member(name, "user", "alice")
    await changed(replica)
    first = body(await replica.alice.get(f"{NS}?limit=1"))
    replica.tables.remove_member("one", "user", "alice")
    await changed(replica)
    rest = await replica.alice.get(f"{NS}?limit=5&continue={first['metadata']['continue']}")

    assert [item["metadata"]["name"] for item in first["items"]] == ["example"]
    assert names(rest.body) == ["two"]
    assert body(rest)["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_namespace_is_selected_by_its_label(
    replica: Replica,
) -> None:  # LW-016: the label that Kubernetes gives each namespace
    label = "kubernetes.io%2Fmetadata.name"
    listed = await replica.admin.get(f"{NS}?labelSelector={label}%20in%20(other,ghost)")
    hidden = await replica.alice.get(f"{NS}?labelSelector={label}%3Dother")
    rev = len(replica.tables.log)
    watch = f"{NS}?watch=1&resourceVersion={rev}&labelSelector={label}%3Dnewer"
    async with replica.admin.open("GET", watch) as stream:
        replica.tables.project("new", START)
        replica.tables.project("newer", START)
        event = await stream.event()

    assert (names(listed.body), names(hidden.body)) == (["other"], [])
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "newer")


async def test_an_older_state_that_is_gone_is_410(replica: Replica) -> None:
    got = await replica.admin.get(f"{NS}?resourceVersion=1&resourceVersionMatch=Exact")

    assert (got.status, body(got)["reason"]) == (410, "Expired")


async def test_a_page_of_a_state_that_is_gone_tells_how_to_go_on(
    replica: Replica,
) -> None:  # LW-114, LW-115: as for attempts
    replica.tables.project("more", START)
    await changed(replica)
    first = body(await replica.admin.get(f"{NS}?limit=1"))["metadata"]
    for number in range(20):  # more views than are kept
        replica.tables.project(f"new-{number}", START)
        await changed(replica)
    gone = await replica.admin.get(f"{NS}?limit=1&continue={first['continue']}")
    fresh = body(gone)["metadata"]["continue"]
    rest = body(await replica.admin.get(f"{NS}?continue={fresh}"))

    assert (gone.status, body(gone)["reason"]) == (410, "Expired")
    assert body(gone)["message"].startswith("The provided continue parameter is too old")
    assert rest["items"][0]["metadata"]["name"] == "more"
    assert len(rest["items"]) == 22
    assert int(rest["metadata"]["resourceVersion"]) > int(first["resourceVersion"])


async def test_a_watch_of_an_admin(replica: Replica) -> None:
    async with replica.admin.open("GET", f"{NS}?watch=1&allowWatchBookmarks=1") as stream:
        initial = await stream.events(3)
        replica.tables.project("new", START)
        added = await stream.event()
        replica.tables.drop_project("new")
        deleted = await stream.event()

    assert [e["type"] for e in initial] == ["ADDED", "ADDED", "BOOKMARK"]
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "new")
    assert (deleted["type"], deleted["object"]["metadata"]["name"]) == ("DELETED", "new")
    revs = [int(e["object"]["metadata"]["resourceVersion"]) for e in (added, deleted)]
    assert revs == [len(replica.tables.log) - 1, len(replica.tables.log)]


async def test_a_watch_begins_in_rising_revision(replica: Replica) -> None:  # LW-016, LW-134
    replica.tables.project("a-later-one", START)
    await changed(replica)
    async with replica.admin.open("GET", f"{NS}?watch=1") as stream:
        initial = await stream.events(3)

    names = [event["object"]["metadata"]["name"] for event in initial]
    assert names == ["example", "other", "a-later-one"]


async def test_a_watch_of_a_member(replica: Replica) -> None:
    rev = len(replica.tables.log)
    async with replica.alice.open("GET", f"{NS}?watch=1&resourceVersion={rev}") as stream:
        replica.tables.project("unseen", START)
        await changed(replica)
        replica.tables.member("other", "user", "alice")
        came = await stream.event()
        replica.tables.remove_member("example", "user", "alice")
        went = await stream.event()

    assert (came["type"], came["object"]["metadata"]["name"]) == ("ADDED", "other")
    assert (went["type"], went["object"]["metadata"]["name"]) == ("DELETED", "example")


async def test_a_watch_resumes(replica: Replica) -> None:
    rev = len(replica.tables.log)
    replica.tables.project("new", START)
    await changed(replica)
    async with replica.admin.open("GET", f"{NS}?watch=1&resourceVersion={rev}") as stream:
        event = await stream.event()

    assert event["object"]["metadata"]["name"] == "new"


async def test_a_tail_that_was_missed_is_410(replica: Replica) -> None:
    async with replica.admin.open("GET", f"{NS}?watch=1&resourceVersion=1") as stream:
        event = await stream.event()

    assert (event["type"], event["object"]["reason"]) == ("ERROR", "Expired")


async def test_a_project_that_came_again_is_another_one(replica: Replica) -> None:  # LW-131
    rev = len(replica.tables.log)
    async with replica.admin.open("GET", f"{NS}?watch=1&resourceVersion={rev}") as stream:
        old = replica.tables.projects["other"].uid
        replica.tables.stir.clear()
        replica.tables.drop_project("other")
        replica.tables.project("between", START)
        replica.tables.project("other", START + timedelta(minutes=1))
        events = await stream.events(3)

    metadata = [e["object"]["metadata"] for e in events]
    assert [(e["type"], one["name"]) for e, one in zip(events, metadata, strict=True)] == [
        ("DELETED", "other"),
        ("ADDED", "between"),
        ("ADDED", "other"),
    ]
    assert [int(one["resourceVersion"]) for one in metadata] == [rev + 1, rev + 2, rev + 3]
    assert metadata[0]["uid"] == str(old) != metadata[2]["uid"]


async def test_shards_of_projects(replica: Replica) -> None:  # LW-016, LW-166
    half = "0x8000000000000000"
    found = []
    for start, end in (("0x0000000000000000", half), (half, "0x10000000000000000")):
        text = f"shardRange(object.metadata.uid,'{start}','{end}')"
        got = body(await replica.admin.get(f"{NS}?shardSelector={quote(text)}"))
        assert got["metadata"]["shardInfo"] == {
            "selector": f"shardRange(object.metadata.uid, '{start}', '{end}')"
        }
        found.append([item["metadata"]["name"] for item in got["items"]])

    lower = [
        name
        for name, project in replica.tables.projects.items()
        if hash_of(str(project.uid)) < half
    ]
    assert found[0] == lower
    assert sorted(found[0] + found[1]) == ["example", "other"]


async def test_namespaces_are_read_only(replica: Replica) -> None:
    got = await replica.admin.request("POST", NS, body=b"{}")
    assert "nodus project create NAME" in body(got)["fix"]
    put = await replica.admin.request("PUT", f"{NS}/example", body=b"{}")
    assert "nodus project" in body(put)["fix"]

    assert (got.status, body(got)["message"]) == (
        405,
        'create is not supported on resources of kind "namespaces"',
    )


async def test_a_consistent_list_while_the_database_is_away(replica: Replica) -> None:
    replica.tables.away = True
    fresh = await replica.admin.get(NS)
    cached = await replica.admin.get(f"{NS}?resourceVersion=0")

    assert (fresh.status, cached.status) == (503, 200)


async def lagging(replica: Replica) -> int:
    """Changes that the view does not come to; returns the revision that it stands at."""
    position = len(replica.tables.log)
    replica.tables.mute = True
    replica.tables.project("new", START)
    replica.tables.drop_project("other")
    await until(lambda: replica.app.access.refused)
    return position


async def late(replica: Replica, *targets: str) -> list[Any]:
    """Answers of those that wait for the view in vain."""
    waiting = replica.app.access._reached
    before = len(waiting)
    asked = [spawn("asked", replica.admin.get(target)) for target in targets]
    await until(lambda: len(waiting) >= before + len(targets))
    await replica.advance(WAIT_SECONDS)
    async with asyncio.timeout(30):
        return await asyncio.gather(*asked)


async def test_a_view_that_lags_is_read_around(
    replica: Replica,
) -> None:  # LW-101, LW-103, LW-105: as for attempts
    position = await lagging(replica)
    head = len(replica.tables.log)

    everything, first = await late(replica, NS, f"{NS}?limit=1")
    one, gone = await late(replica, f"{NS}/new", f"{NS}/other")
    page = body(first)
    rest = body(await replica.admin.get(f"{NS}?continue={page['metadata']['continue']}"))

    assert names(everything.body) == ["example", "new"]
    assert body(everything)["metadata"]["resourceVersion"] == str(head)
    assert (one.status, gone.status) == (200, 404)
    assert [i["metadata"]["name"] for i in page["items"] + rest["items"]] == ["example", "new"]
    assert rest["metadata"]["resourceVersion"] == str(head)  # LW-110
    assert replica.app.access.view is not None
    assert replica.app.access.view.rev == position


async def test_who_names_a_revision_is_told_to_come_again(
    replica: Replica,
) -> None:  # LW-103, LW-124
    position = await lagging(replica)
    head = len(replica.tables.log)
    for query in ("", "&resourceVersionMatch=Exact"):
        [got] = await late(replica, f"{NS}?resourceVersion={head}{query}")
        assert (got.status, body(got)["message"]) == (
            504,
            f"Timeout: Too large resource version: {head}, current: {position}",
        )


async def test_few_read_around_a_view_at_once(replica: Replica) -> None:  # else 504
    await lagging(replica)
    held = replica.tables.load_held = asyncio.Event()
    waiting = replica.app.access._reached
    before = len(waiting)
    asked = [spawn("asked", replica.admin.get(NS)) for _ in range(4)]
    await until(lambda: len(waiting) == before + 4)
    await replica.advance(WAIT_SECONDS)
    await until(lambda: sum(one.done() for one in asked) == 2)
    held.set()

    assert sorted([(await one).status for one in asked]) == [200, 200, 504, 504]


async def test_what_fails_around_a_view_is_told(replica: Replica) -> None:  # LW-199
    await lagging(replica)
    waiting = replica.app.access._reached
    for lost in (False, True):
        before = len(waiting)
        asked = spawn("asked", replica.admin.get(NS))
        await until(lambda before=before: len(waiting) == before + 1)  # type: ignore[misc]
        if lost:
            del replica.tables.log[-1:]  # a failover: that head is no more
        replica.tables.away = not lost
        await replica.advance(WAIT_SECONDS)
        got = await asked
        replica.tables.away = False

        assert (got.status, body(got)["reason"]) == (
            (429, "TooManyRequests") if lost else (503, "ServiceUnavailable")
        )


async def test_the_old_path_watches_one_project(replica: Replica) -> None:  # LW-006, LW-016
    watch = "/api/v1/watch/namespaces"
    async with replica.alice.open("GET", f"{watch}/example?allowWatchBookmarks=1") as stream:
        events = await stream.events(2)
    async with replica.alice.open("GET", f"{watch}/other?allowWatchBookmarks=1") as stream:
        hidden = await stream.event()
    refused = await replica.alice.get(f"{watch}/example?fieldSelector=metadata.name%3Dother")

    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    assert events[0]["object"]["metadata"]["name"] == "example"
    assert hidden["type"] == "BOOKMARK"  # alice may not see it
    assert orjson.loads(refused.body)["message"] == (
        "fieldSelector metadata.name doesn't match requested name"
    )
