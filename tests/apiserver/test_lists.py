"""Lists and gets, by the conformance cases of list-watch.md."""

import orjson
from tests.apiserver.conftest import Replica, names

N = "/apis/nodus.dev/v1/namespaces/example/attempts"
A = "/apis/nodus.dev/v1/attempts"


async def test_a_list_for_curl_is_indented(replica: Replica) -> None:  # LW C-01
    got = await replica.admin.get(N, user_agent="curl/8.0")

    body = orjson.loads(got.body)
    assert (got.status, body["kind"], len(body["items"])) == (200, "AttemptList", 12)
    assert {(i["kind"], i["apiVersion"]) for i in body["items"]} == {("Attempt", "nodus.dev/v1")}
    assert int(body["metadata"]["resourceVersion"]) >= max(
        int(i["metadata"]["resourceVersion"]) for i in body["items"]
    )
    assert got.body == orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


async def test_a_list_of_all_projects_is_in_byte_order(replica: Replica) -> None:  # LW C-04
    got = await replica.admin.get(A)

    items = orjson.loads(got.body)["items"]
    keys = [(i["metadata"]["namespace"], i["metadata"]["name"]) for i in items]
    assert len(keys) == 15
    assert keys == sorted(keys)


async def test_pages_hold_the_state_of_the_first(replica: Replica) -> None:  # LW C-40, C-41
    first = await replica.admin.get(f"{N}?limit=5")
    meta = orjson.loads(first.body)["metadata"]
    replica.delete("example", "fit-6-e1")
    replica.add("example", "zz-0-e1")

    seen, revs = names(first.body), {meta["resourceVersion"]}
    token = meta["continue"]
    while token:
        page = await replica.admin.get(f"{N}?limit=5&continue={token}")
        body = orjson.loads(page.body)
        seen += names(page.body)
        revs.add(body["metadata"]["resourceVersion"])
        token = body["metadata"].get("continue")

    assert meta["remainingItemCount"] == 7
    assert (len(seen), len(set(seen)), len(revs)) == (12, 12, 1)
    assert "fit-6-e1" in seen
    assert "zz-0-e1" not in seen
