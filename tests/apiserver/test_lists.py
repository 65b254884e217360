"""Lists, by the conformance cases of list-watch.md."""

import asyncio
import gzip
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from tests.apiserver.conftest import A, N, Replica, names, replica_of, running
from tests.asgi_client import Response
from tests.watchcache.conftest import until

from nodus_api.apiserver import ServerOptions
from nodus_api.tasks import spawn


def body(got: Any) -> Any:
    return orjson.loads(got.body)


def message(got: Any) -> tuple[int, str, str]:
    status = body(got)
    assert status["code"] == got.status
    return got.status, status["reason"], status["message"]


async def test_a_list_for_curl_is_indented(
    replica: Replica,
) -> None:  # LW C-01, LW-001, LW-004, LW-130
    got = await replica.admin.get(N, user_agent="curl/8.0")

    found = body(got)
    assert (got.status, found["kind"], len(found["items"])) == (200, "AttemptList", 12)
    assert {(i["kind"], i["apiVersion"]) for i in found["items"]} == {("Attempt", "nodus.dev/v1")}
    assert int(found["metadata"]["resourceVersion"]) >= max(
        int(i["metadata"]["resourceVersion"]) for i in found["items"]
    )
    assert got.body == orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


async def test_a_list_for_others_is_compact(replica: Replica) -> None:  # LW C-02
    got = await replica.admin.get(N, user_agent="x")

    assert got.body == orjson.dumps(body(got), option=orjson.OPT_APPEND_NEWLINE)
    assert got.headers["content-length"] == str(len(got.body))


@pytest.mark.parametrize(("value", "indents"), [("1", True), ("true", True), ("0", False)])
async def test_pretty_decides(replica: Replica, value: str, indents: bool) -> None:  # LW C-03
    got = await replica.admin.get(f"{N}?pretty={value}", user_agent="x")

    assert (got.body.count(b"\n") > 1) is indents


@pytest.mark.parametrize(
    "accept", ["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"]
)
@pytest.mark.parametrize("target", [N, A, f"{N}?labelSelector=no"])
async def test_an_indented_list_says_what_the_compact_one_says(
    replica: Replica, target: str, accept: str
) -> None:  # LW-019
    sign = "&" if "?" in target else "?"
    compact = await replica.admin.get(target, accept=accept)
    indented = await replica.admin.get(f"{target}{sign}pretty=1", accept=accept)

    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    assert indented.body == orjson.dumps(orjson.loads(compact.body), option=options)


async def test_a_list_of_all_projects_is_in_byte_order(
    replica: Replica,
) -> None:  # LW C-04, LW-002, LW-106
    items = body(await replica.admin.get(A))["items"]

    keys = [(i["metadata"]["namespace"], i["metadata"]["name"]) for i in items]
    assert len(keys) == 15
    assert keys == sorted(keys)


async def test_a_project_without_attempts_is_an_empty_list(
    replica: Replica,
) -> None:  # LW C-07, LW-015
    got = await replica.admin.get("/apis/nodus.dev/v1/namespaces/ghost/attempts")

    assert (got.status, body(got)["items"]) == (200, [])


# -- forms -----------------------------------------------------------------------------------------


async def test_gzip_begins_at_128_kib(replica: Replica) -> None:  # LW C-36
    small = await replica.admin.get(A, accept_encoding="gzip")
    for number in range(400):
        replica.add("bulk", f"n-{number}-e1")
    big = await replica.admin.get(A, accept_encoding="gzip, deflate")
    plain = await replica.admin.get(A, accept_encoding="gzip;q=0")

    assert "content-encoding" not in small.headers
    assert big.headers["content-encoding"] == "gzip"
    assert big.headers["vary"] == small.headers["vary"] == "Accept, Accept-Encoding"  # LW-059
    assert "content-encoding" not in plain.headers
    assert len(plain.body) > 131_072 > len(big.body)
    assert gzip.decompress(big.body) == plain.body


async def test_metadata_alone(replica: Replica) -> None:  # LW C-35
    partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    listed = body(await replica.admin.get(N, accept=partial))
    refused = await replica.admin.get(f"{N}/train-0-e1", accept=partial)

    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert {tuple(sorted(i)) for i in listed["items"]} == {("apiVersion", "kind", "metadata")}
    assert message(refused) == (
        406,
        "NotAcceptable",
        "you requested PartialObjectMetadataList, but the requested object is not a list (Attempt)",
    )


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/vnd.kubernetes.protobuf", 406),  # LW C-29
        ("application/vnd.kubernetes.protobuf,application/json", 200),  # LW C-30
        ("application/json;q=0.1,*/*;q=0.9", 200),  # LW C-31
        ("application/json;as=Table", 406),  # LW C-34
        ("text/html", 406),
    ],
)
async def test_the_accept_header_decides(replica: Replica, accept: str, status: int) -> None:
    got = await replica.admin.get(N, accept=accept)

    assert got.status == status
    assert got.headers["content-type"] == "application/json"  # LW-055, LW-056
    if status == 406 and "as=" not in accept:
        assert message(got)[2] == "only the following media types are accepted: application/json"


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=abc", (400, "BadRequest", 'strconv.ParseInt: parsing "abc": invalid syntax')),
        ("limit=", (400, "BadRequest", 'strconv.ParseInt: parsing "": invalid syntax')),  # C-37
        (
            "resourceVersionMatch=Exact",  # LW C-48
            (
                422,
                "Invalid",
                'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact",  # LW C-49
            (
                422,
                "Invalid",
                'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
                'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
            ),
        ),
        (
            "sendInitialEvents=false",  # LW C-51
            (
                422,
                "Invalid",
                'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: '
                "sendInitialEvents is forbidden for list",
            ),
        ),
        ("fieldSelector=spec.foo%3D1", (400, "BadRequest", "field label not supported: spec.foo")),
        (
            "continue=xx&resourceVersion=5",  # LW C-54
            (400, "BadRequest", "specifying resource version is not allowed when using continue"),
        ),
        (
            "timeout=xyz",  # LW C-90
            (
                400,
                "BadRequest",
                'invalid timeout specified in the request URL - time: invalid duration "xyz"',
            ),
        ),
    ],
)
async def test_what_cannot_be_asked(
    replica: Replica, query: str, expected: tuple[int, str, str]
) -> None:
    assert message(await replica.admin.get(f"{N}?{query}")) == expected


async def test_every_refusal_tells_what_to_do(replica: Replica) -> None:  # LW-180, LW-202
    got = await replica.admin.get(f"{N}?resourceVersion=5&resourceVersionMatch=Foo")  # LW C-50

    status = body(got)
    assert list(status) == [
        "kind",
        "apiVersion",
        "metadata",
        "status",
        "message",
        "reason",
        "details",
        "code",
        "docs",
        "fix",
        "requestId",
    ]
    assert status["docs"] == "https://nodus.test/docs/errors/Invalid"
    assert status["requestId"] == got.headers["audit-id"]
    assert status["fix"]
    assert status["details"]["causes"][0]["field"] == "resourceVersionMatch"


async def test_a_malformed_version_is_400_everywhere(replica: Replica) -> None:  # LW C-52
    for target in (f"{N}?", f"{N}/train-0-e1?", f"{N}?watch=1&"):
        got = await replica.admin.get(f"{target}resourceVersion=abc")
        assert got.status == 400


# -- selectors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("labelSelector=nodus.dev/job!=fit", ["train-0-e1", "train-1-e1", "train-2-e1"]),
        ("fieldSelector=status.phase%3DRunning,spec.slot%3D0", ["train-0-e1"]),  # LW C-59
        ("fieldSelector=status.reason%3DProgramFailed", ["train-2-e1"]),
        ("fieldSelector=metadata.name%3Dnope", []),  # LW C-62
        ("fieldSelector=metadata.name%3Dtrain-1-e1", ["train-1-e1"]),
        (
            "labelSelector=nodus.dev/job%3Dtrain&labelSelector=nodus.dev/job%3Dfit",  # LW C-63
            ["train-0-e1", "train-1-e1", "train-2-e1"],
        ),
        ("limit=-5&labelSelector=!other&fieldSelector=spec.slot%3D2", ["train-2-e1"]),
    ],
)
async def test_selectors_choose(replica: Replica, query: str, expected: list[str]) -> None:
    assert names((await replica.admin.get(f"{N}?{query}")).body) == expected


async def test_an_absent_field_is_empty(replica: Replica) -> None:  # LW C-60
    found = names((await replica.admin.get(f"{N}?fieldSelector=status.reason%3D")).body)

    assert len(found) == 11
    assert "train-2-e1" not in found


async def test_a_negative_limit_is_none(replica: Replica) -> None:  # LW C-38
    assert len(names((await replica.admin.get(f"{N}?limit=-5")).body)) == 12


async def test_a_name_is_found_in_every_project(replica: Replica) -> None:  # LW-100
    replica.add("other", "train-0-e1")
    items = body(await replica.admin.get(f"{A}?fieldSelector=metadata.name%3Dtrain-0-e1"))["items"]

    assert [i["metadata"]["namespace"] for i in items] == ["example", "other"]


async def test_shards_are_disjoint_and_whole(replica: Replica) -> None:  # LW C-84
    def shard(low: str, high: str) -> str:
        return quote(f"shardRange(object.metadata.uid,'{low}','{high}')")

    half = "0x8000000000000000"
    lower = body(await replica.admin.get(
        f"{N}?limit=500&shardSelector={shard('0x0000000000000000', half)}"
    ))  # fmt: skip
    upper = body(await replica.admin.get(f"{N}?shardSelector={shard(half, '0x10000000000000000')}"))

    found = [[i["metadata"]["name"] for i in part["items"]] for part in (lower, upper)]
    assert sorted(found[0] + found[1]) == names((await replica.admin.get(N)).body)
    assert lower["metadata"]["shardInfo"]["selector"] == (
        "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
    )
    assert "remainingItemCount" not in lower["metadata"]


@pytest.mark.parametrize(
    "text",
    [
        "shardRange(object.metadata.uid,'0x0','0x8000000000000000')",
        "shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000') || "
        "shardRange(object.metadata.namespace,'0x0000000000000000','0x8000000000000000')",
        "shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000') && true",
    ],
)
async def test_shard_selectors_that_say_nothing(replica: Replica, text: str) -> None:  # LW C-85
    status, reason, said = message(await replica.admin.get(f"{N}?shardSelector={quote(text)}"))

    assert (status, reason) == (400, "BadRequest")
    assert said.startswith("invalid shard selector: ")


# -- versions --------------------------------------------------------------------------------------


async def test_pages_hold_the_state_of_the_first(replica: Replica) -> None:  # LW C-40, C-41
    first = await replica.admin.get(f"{N}?limit=5")
    meta = body(first)["metadata"]
    replica.delete("example", "fit-6-e1")
    replica.add("example", "zz-0-e1")

    seen, revs, last = names(first.body), {meta["resourceVersion"]}, meta
    while "continue" in last:
        page = await replica.admin.get(f"{N}?limit=5&continue={last['continue']}")
        last = body(page)["metadata"]
        seen += names(page.body)
        revs.add(last["resourceVersion"])

    assert meta["remainingItemCount"] == 7
    assert (len(seen), len(set(seen)), len(revs)) == (12, 12, 1)
    assert "fit-6-e1" in seen
    assert "zz-0-e1" not in seen
    assert "remainingItemCount" not in last


async def test_pages_of_all_projects_cross_their_borders(replica: Replica) -> None:  # LW-109
    seen: list[str] = []
    token = ""
    for _ in range(8):
        page = body(await replica.admin.get(f"{A}?limit=4&continue={token}"))
        seen += [f"{i['metadata']['namespace']}/{i['metadata']['name']}" for i in page["items"]]
        token = page["metadata"].get("continue", "")
        if not token:
            break

    assert len(seen) == 15
    assert seen == sorted(seen)


async def test_a_page_that_holds_all_is_the_last(replica: Replica) -> None:  # LW-108
    found = [body(await replica.admin.get(f"{N}?limit={limit}")) for limit in (11, 12, 500)]

    assert [len(page["items"]) for page in found] == [11, 12, 12]
    assert ["continue" in page["metadata"] for page in found] == [True, False, False]


async def test_a_page_of_a_selector_does_not_count_what_is_left(replica: Replica) -> None:  # C-42
    meta = body(await replica.admin.get(f"{N}?limit=5&labelSelector=nodus.dev/job"))["metadata"]

    assert "continue" in meta
    assert "remainingItemCount" not in meta


async def test_any_cached_state_ignores_the_limit_of_a_following_page(
    replica: Replica,
) -> None:  # LW-101, LW-112
    token = body(await replica.admin.get(f"{N}?limit=5"))["metadata"]["continue"]
    found = body(await replica.admin.get(f"{N}?limit=5&resourceVersion=0&continue={token}"))

    assert len(found["items"]) == 7
    assert "continue" not in found["metadata"]


async def test_any_cached_state_ignores_the_limit(replica: Replica) -> None:  # LW C-43
    found = body(await replica.admin.get(f"{N}?limit=5&resourceVersion=0"))

    assert len(found["items"]) == 12
    assert "continue" not in found["metadata"]


@pytest.mark.parametrize("query", ["limit=50&", "resourceVersionMatch=Exact&"])
async def test_an_exact_state(replica: Replica, query: str) -> None:  # LW C-44, C-45
    rev = replica.rev
    replica.delete("example", "train-0-e1")
    replica.change("example", "train-1-e1", "Running")

    found = body(await replica.admin.get(f"{N}?{query}resourceVersion={rev}"))

    assert found["metadata"]["resourceVersion"] == str(rev)
    phases = {i["metadata"]["name"]: i["status"]["phase"] for i in found["items"]}
    assert len(phases) == 12
    assert (phases["train-0-e1"], phases["train-1-e1"]) == ("Running", "Queued")


async def test_what_history_no_longer_has(replica: Replica) -> None:  # LW C-46, C-47
    rev = replica.rev - 5
    await replica.compact()

    exact = await replica.admin.get(f"{N}?resourceVersion={rev}&resourceVersionMatch=Exact")
    newest = await replica.admin.get(f"{N}?resourceVersion={rev}")

    assert message(exact) == (
        410,
        "Expired",
        "The resourceVersion for the provided list is too old.",
    )
    assert (newest.status, len(names(newest.body))) == (200, 12)


async def test_an_expired_token_hands_out_one_that_goes_on(replica: Replica) -> None:  # LW C-55
    first = body(await replica.admin.get(f"{N}?limit=5"))
    token = first["metadata"]["continue"]
    replica.change("example", "train-0-e1", "Failed")
    await replica.compact()

    expired = await replica.admin.get(f"{N}?limit=5&continue={token}")
    fresh = body(expired)["metadata"]["continue"]
    rest = await replica.admin.get(f"{N}?limit=50&continue={fresh}")

    assert message(expired)[:2] == (410, "Expired")
    assert names(rest.body)[0] == "fit-5-e1"
    assert body(rest)["metadata"]["resourceVersion"] == str(replica.rev)  # LW-115


@pytest.mark.parametrize("where", ["changed", "another path", "another selector"])
async def test_a_token_is_good_for_its_list_alone(replica: Replica, where: str) -> None:  # LW C-55
    token = body(await replica.admin.get(f"{N}?limit=5"))["metadata"]["continue"]
    target = {
        "changed": f"{N}?limit=5&continue={token[:-1]}{'A' if token[-1] != 'A' else 'Q'}",
        "another path": f"{A}?limit=5&continue={token}",
        "another selector": f"{N}?limit=5&labelSelector=a&continue={token}",
    }[where]

    status, reason, said = message(await replica.admin.get(target))

    assert (status, reason) == (400, "BadRequest")
    assert said.startswith("invalid continue token: continue key is not valid: ")


async def test_a_version_that_is_not_there_yet_is_504(replica: Replica) -> None:  # LW C-53
    waiting = replica.admin.get(f"{N}?resourceVersion={replica.rev + 1000}")
    task = spawn("list", waiting)
    await asyncio.sleep(0.01)
    await replica.advance(3.25)
    got = await task

    status = body(got)
    assert message(got) == (
        504,
        "Timeout",
        f"Timeout: Too large resource version: {replica.rev + 1000}, current: {replica.rev}",
    )
    assert status["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    assert got.headers["retry-after"] == "1"


async def test_reads_while_the_database_is_away(replica: Replica) -> None:  # LW-199
    await replica.admin.get(N)
    replica.log.away = True
    fresh = await replica.admin.get(N)
    cached = await replica.admin.get(f"{N}?resourceVersion=0")

    assert message(fresh)[:2] == (503, "ServiceUnavailable")
    assert fresh.headers["retry-after"] == "1"
    assert (cached.status, len(names(cached.body))) == (200, 12)


async def test_a_replica_that_has_not_loaded_asks_to_come_back() -> None:  # LW-196, AS-096
    cold = replica_of(options=ServerOptions())
    cold.log.away = True
    async with running(cold):
        cold.cache.health.refused = False
        got = await cold.admin.get(N)
        probe = await cold.admin.get("/apis/nodus.dev/v1")

    assert message(got) == (429, "TooManyRequests", "storage is (re)initializing")
    assert probe.status == 200  # LW-034


async def test_a_walk_of_the_log_that_takes_too_long_is_to_be_repeated(
    replica: Replica,
) -> None:  # LW-198
    rev = replica.rev
    replica.change("example", "train-0-e1", "Failed")
    await replica.compact()
    replica.log.lost_below = 0
    replica.log.slow = True

    got = await replica.admin.get(f"{N}?resourceVersion={rev}&limit=5")
    replica.log.slow = False
    again = body(await replica.admin.get(f"{N}?resourceVersion={rev}&limit=5"))

    assert message(got) == (
        500,
        "ServerTimeout",
        "The list operation against attempts.nodus.dev could not be completed at this time, "
        "please try again.",
    )
    assert body(got)["details"] == {
        "name": "list",
        "group": "nodus.dev",
        "kind": "attempts",
        "retryAfterSeconds": 2,
    }
    assert got.headers["retry-after"] == "2"
    assert again["metadata"]["resourceVersion"] == str(rev)
    assert len(again["items"]) == 5


async def test_a_replica_that_lags_reads_around_its_cache(replica: Replica) -> None:
    """A consistent list or get of it is 200, however long the cache lags (storage.md section 6)."""
    await replica.admin.get(N)
    replica.log.lagging = True
    rev = replica.change("example", "train-0-e1", "Failed")

    async def waited(target: str) -> Response:
        asked = spawn("asked", replica.admin.get(target))
        await until(lambda: len(replica.cache._reached) == 1)
        await replica.advance(3)
        return await asked

    got = await waited(f"{N}?limit=10")
    more = await replica.admin.get(f"{N}?limit=10&continue={body(got)['metadata']['continue']}")
    one = await waited(f"{N}/train-0-e1")
    named = await waited(f"{N}?resourceVersion={rev}&resourceVersionMatch=NotOlderThan")

    assert [one.status for one in (got, more, one, named)] == [200, 200, 200, 504]
    assert body(got)["metadata"]["resourceVersion"] == str(rev)
    assert body(more)["metadata"] == {"resourceVersion": str(rev)}
    assert body(got)["metadata"]["remainingItemCount"] == 2
    assert len(names(got.body) + names(more.body)) == 12
    assert body(one)["status"]["phase"] == "Failed"
    replica.log.lagging = False
    assert body(await replica.admin.get(N))["metadata"]["resourceVersion"] == str(rev)


@pytest.mark.parametrize("key", ["labelSelector", "fieldSelector", "shardSelector"])
async def test_a_token_is_good_for_its_own_selectors_alone(
    replica: Replica, key: str
) -> None:  # LW-116
    half = "shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')"
    chosen = {"labelSelector": "a", "fieldSelector": "spec.slot=0", "shardSelector": half}[key]
    token = body(await replica.admin.get(f"{N}?limit=5"))["metadata"]["continue"]
    got = await replica.admin.get(f"{N}?limit=5&continue={token}&{key}={chosen}")

    assert (got.status, body(got)["message"].rpartition(": ")[2]) == (400, "checksum")
