"""Projects as namespaces: what kubectl, kubens and kopf ask for (LW-016)."""

from datetime import timedelta
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from tests.apiserver.conftest import START, Replica, T, names
from tests.watchcache.conftest import until

from nodus_api.metav1.shards import hash_of

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


async def test_a_project_that_came_again_is_another_one(replica: Replica) -> None:
    rev = len(replica.tables.log)
    async with replica.admin.open("GET", f"{NS}?watch=1&resourceVersion={rev}") as stream:
        old = replica.tables.projects["other"].uid
        replica.tables.stir.clear()
        replica.tables.drop_project("other")
        replica.tables.project("other", START + timedelta(minutes=1))
        events = await stream.events(2)

    assert [e["type"] for e in events] == ["DELETED", "ADDED"]
    assert events[0]["object"]["metadata"]["uid"] == str(old)
    assert events[1]["object"]["metadata"]["uid"] != str(old)


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
