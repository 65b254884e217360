"""The conformance cases of list-watch.md that are one request and its answer, over TLS.

The numbers are those of the specification; kubectl's cases stand in tests/conformance, those of
other clients in tests/clients. This fixture never changes, so one server is enough.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from tests.apiserver.conftest import A, N, T
from tests.apiserver.serving import served
from tests.apiserver.wire import Wire, meta, names, refusal_of

from nodus_api.attempts import columns

V1 = "/apis/nodus.dev/v1"
DISCOVERY = "application/json;as=APIGroupDiscoveryList;v={};g=apidiscovery.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
HALF = "0x8000000000000000"


@pytest.fixture(scope="module")
async def wire(certificates: Path) -> AsyncIterator[Wire]:
    async with served(certificates) as one:
        for number, size in enumerate(("4", "6", "abc")):
            uid = UUID(int=2**96 + number)
            labels, fields = {"x": size, "nodus.dev/job": "sized"}, {"status.phase": "Queued"}
            one.replica.log.commit(("A", uid, "sizes", f"sized-{number}-e1", labels, fields))
        await one.replica.caught_up()
        yield Wire(one)


def indented(found: Any) -> bytes:
    return orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def compact(found: Any) -> bytes:
    return orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE)


# -- paths and methods ----------------------------------------------------------------------------


async def test_c01_a_list(wire: Wire) -> None:  # LW C-01
    got = await wire.ask()
    found = got.json()

    assert (got.status_code, found["kind"], found["apiVersion"]) == (
        200,
        "AttemptList",
        "nodus.dev/v1",
    )
    assert len(found["items"]) == 12
    assert {(one["kind"], one["apiVersion"]) for one in found["items"]} == {
        ("Attempt", "nodus.dev/v1")
    }
    revs = [int(one["metadata"]["resourceVersion"]) for one in found["items"]]
    assert int(found["metadata"]["resourceVersion"]) >= max(revs)
    assert got.content == indented(found)


async def test_c02_compact_for_programs(wire: Wire) -> None:  # LW C-02
    got = await wire.ask(agent="x")

    assert got.content == compact(got.json())


@pytest.mark.parametrize(("agent", "pretty"), [("x", "1"), ("curl/8", "0")])
async def test_c03_pretty(wire: Wire, agent: str, pretty: str) -> None:  # LW C-03
    got = await wire.ask(N, {"pretty": pretty}, agent=agent)

    assert got.content == (indented if pretty == "1" else compact)(got.json())


async def test_c04_all_projects(wire: Wire) -> None:  # LW C-04
    got = await wire.ask(A)
    keys = [(i["metadata"]["namespace"], i["metadata"]["name"]) for i in got.json()["items"]]

    assert [project for project, _ in keys] == ["example"] * 12 + ["other"] * 3 + ["sizes"] * 3
    assert keys == sorted(keys)


async def test_c05_one_attempt(wire: Wire) -> None:  # LW C-05
    got = await wire.ask(f"{N}/train-0-e1")

    assert (got.status_code, got.json()["kind"]) == (200, "Attempt")
    assert got.headers["content-type"] == "application/json"
    assert str(UUID(got.headers["audit-id"])) == got.headers["audit-id"]
    assert got.headers["cache-control"] == "no-cache, private"


async def test_c06_none_of_that_name(wire: Wire) -> None:  # LW C-06
    got = await wire.ask(f"{N}/nope")

    assert refusal_of(got) == (404, "NotFound", 'attempts.nodus.dev "nope" not found')
    assert got.json()["details"] == {"name": "nope", "group": "nodus.dev", "kind": "attempts"}
    assert list(got.json()) == [
        *("kind", "apiVersion", "metadata", "status", "message", "reason", "details", "code"),
        *("docs", "fix", "requestId"),
    ]


async def test_c07_a_project_without_attempts(wire: Wire) -> None:  # LW C-07
    got = await wire.ask(f"{V1}/namespaces/ghost/attempts")

    assert (got.status_code, got.json()["items"]) == (200, [])


async def test_c08_a_slash_at_the_end(wire: Wire) -> None:  # LW C-08
    got = await wire.ask(f"{N}/")

    assert (got.status_code, got.history, len(names(got))) == (200, [], 12)


async def test_c09_a_head(wire: Wire) -> None:  # LW C-09
    got, listed = await wire.ask(method="HEAD"), await wire.ask()

    assert (got.status_code, got.content) == (200, b"")
    assert got.headers["content-length"] == listed.headers["content-length"]


@pytest.mark.parametrize(
    ("method", "target", "verb"),
    [
        ("POST", N, "create"),  # LW C-10
        ("DELETE", N, "deletecollection"),  # LW C-11
        ("PATCH", f"{N}/train-0-e1", "patch"),  # LW C-12
        ("PUT", f"{N}/train-0-e1", "update"),
        ("DELETE", f"{N}/train-0-e1", "delete"),
    ],
)
async def test_c10_to_c12_no_writes(wire: Wire, method: str, target: str, verb: str) -> None:
    got = await wire.ask(target, method=method, content=b"{", content_type="text/x")

    said = f'{verb} is not supported on resources of kind "attempts.nodus.dev"'
    assert refusal_of(got) == (405, "MethodNotAllowed", said)
    assert got.json()["details"] == {"group": "nodus.dev", "kind": "attempts"}
    assert got.headers["allow"] == "GET, HEAD"


async def test_c13_no_sub_resources(wire: Wire) -> None:  # LW C-13
    said = 'attempts.nodus.dev "train-0-e1" not found'
    assert await wire.refusal(f"{N}/train-0-e1/status") == (404, "NotFound", said)


@pytest.mark.parametrize("target", ["/apis/nodus.dev/v2/attempts", "/nope"])
async def test_c14_what_is_not_there(wire: Wire, target: str) -> None:  # LW C-14
    got = await wire.ask(target)

    said = "the server could not find the requested resource"
    assert refusal_of(got) == (404, "NotFound", said)
    assert got.json()["details"] == {}


async def test_c15_the_audit_id_comes_back_once(wire: Wire) -> None:  # LW C-15
    got = await wire.ask(audit_id="abc")
    refused = await wire.ask(f"{N}/nope", audit_id="abc")

    assert got.headers.get_list("audit-id") == ["abc"]
    assert refused.json()["requestId"] == "abc"


# -- discovery and documents ----------------------------------------------------------------------


async def test_c16_groups(wire: Wire) -> None:  # LW C-16; LW-023: stand-alone the reviews, too
    found = (await wire.ask("/apis")).json()

    groups = []
    for name in ("nodus.dev", "authentication.k8s.io", "authorization.k8s.io"):
        version = {"groupVersion": f"{name}/v1", "version": "v1"}
        groups.append({"name": name, "versions": [version], "preferredVersion": version})
    assert found == {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


async def test_c17_c18_aggregated_discovery(wire: Wire) -> None:  # LW C-17, LW C-18
    accept = DISCOVERY.format("v2")
    got = await wire.ask("/apis", accept=accept)
    again = await wire.ask("/apis", accept=accept, if_none_match=got.headers["etag"])

    assert got.headers["content-type"] == (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    )
    assert got.headers["vary"] == "Accept"
    assert got.headers["etag"][0] == got.headers["etag"][-1] == '"'
    assert got.json()["items"][0]["versions"][0]["resources"][0]["resource"] == "attempts"
    assert (again.status_code, again.content) == (304, b"")


async def test_c19_the_beta_is_gone(wire: Wire) -> None:  # LW C-19
    beta = DISCOVERY.format("v2beta1")
    refused = await wire.refusal("/apis", accept=beta)
    got = await wire.ask("/apis", accept=f"{beta},application/json")

    assert refused[:2] == (406, "NotAcceptable")
    assert got.json()["kind"] == "APIGroupList"


async def test_c89_the_documents(wire: Wire) -> None:  # LW C-89
    index = await wire.ask("/openapi/v3")
    where = index.json()["paths"]["apis/nodus.dev/v1"]["serverRelativeURL"]
    found = await wire.ask(where)
    wrong = await wire.ask(where[:-4] + "0000")

    assert (index.status_code, index.headers["etag"][0]) == (200, '"')
    assert (found.status_code, found.json()["openapi"]) == (200, "3.0.0")
    assert found.headers["cache-control"] == "public, immutable"
    assert "expires" in found.headers
    assert (wrong.status_code, wrong.content) == (200, found.content)
    assert wrong.headers["cache-control"] == "no-cache, private"
    assert (await wire.ask(where, if_none_match=found.headers["etag"])).status_code == 304


# -- forms ----------------------------------------------------------------------------------------

ONLY_JSON = "only the following media types are accepted: application/json"


async def test_c29_protobuf_alone(wire: Wire) -> None:  # LW C-29
    for target in (N, f"{N}?watch=1"):
        said = await wire.refusal(target, accept="application/vnd.kubernetes.protobuf")
        assert said == (406, "NotAcceptable", ONLY_JSON)


@pytest.mark.parametrize(
    "accept",
    [
        "application/vnd.kubernetes.protobuf,application/json",  # LW C-30
        "application/json;q=0.1,*/*;q=0.9",  # LW C-31
        "application/cbor, application/json;q=0.9",
    ],
)
async def test_c30_c31_json_in_the_end(wire: Wire, accept: str) -> None:
    got = await wire.ask(accept=accept)

    assert (got.status_code, got.json()["kind"]) == (200, "AttemptList")
    assert got.headers["content-type"] == "application/json"


async def test_c32_a_table(wire: Wire) -> None:  # LW C-32, LW-250, LW-253, LW-256
    got = await wire.ask(accept=T)
    found = got.json()

    assert (found["kind"], found["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [set(one) for one in found["columnDefinitions"]] == [
        {"name", "type", "format", "description", "priority"}
    ] * 17
    assert [one["name"] for one in found["columnDefinitions"]] == [
        *("Name", "Phase", "Reason", "Offering", "Cost", "Runtime", "Age"),
        *("Stage", "Slot", "Epoch", "Rank", "Region", "Rate", "Profile", "Interruption"),
        *("Exit", "Superseded-By"),
    ]
    assert [one["priority"] for one in found["columnDefinitions"]] == [0] * 7 + [1] * 10
    assert {row["object"]["kind"] for row in found["rows"]} == {"PartialObjectMetadata"}
    assert got.headers["content-type"] == "application/json"


async def test_cells_are_json_of_their_columns_type(wire: Wire) -> None:  # LW-251
    found = (await wire.ask(A, accept=T)).json()
    kinds: dict[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool}
    types = [kinds[one["type"]] for one in found["columnDefinitions"]]

    assert [one.type for one in columns.COLUMNS] == [
        one["type"] for one in found["columnDefinitions"]
    ]
    for row in found["rows"]:
        for cell, kind in zip(row["cells"], types, strict=True):
            assert cell is None or type(cell) is kind
    ages = [row["cells"][6] for row in found["rows"]]
    assert all(age[-1] in "smhdy" for age in ages)  # the client prints it as it stands


async def test_c33_what_stands_beside_the_cells(wire: Wire) -> None:  # LW C-33
    none = (await wire.ask(N, {"includeObject": "None"}, accept=T)).json()
    whole = (await wire.ask(N, {"includeObject": "Object"}, accept=T)).json()
    refused = await wire.refusal(N, {"includeObject": "X"}, accept=T)
    listed = (await wire.ask()).json()

    assert [row["object"] for row in none["rows"]] == [None] * 12
    assert [row["object"] for row in whole["rows"]] == listed["items"]
    assert refused == (
        400,
        "BadRequest",
        'Unable to convert to Table as requested: includeObject: Invalid value: "X": must be '
        "'Metadata', 'Object', 'None', or empty",
    )


async def test_c34_a_table_without_its_group(wire: Wire) -> None:  # LW C-34
    said = await wire.refusal(accept="application/json;as=Table")
    assert said == (406, "NotAcceptable", ONLY_JSON)


async def test_c35_metadata_alone(wire: Wire) -> None:  # LW C-35
    found = (await wire.ask(accept=PARTIAL.format("List"))).json()
    refused = await wire.refusal(f"{N}/train-0-e1", accept=PARTIAL.format("List"))
    listed = await wire.refusal(accept=PARTIAL.format(""))
    one = (await wire.ask(f"{N}/train-0-e1", accept=PARTIAL.format(""))).json()

    assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert {tuple(item) for item in found["items"]} == {("kind", "apiVersion", "metadata")}
    assert refused == (
        406,
        "NotAcceptable",
        "you requested PartialObjectMetadataList, but the requested object is not a list (Attempt)",
    )
    assert listed == (
        406,
        "NotAcceptable",
        "you requested PartialObjectMetadata, but the requested object is a list (AttemptList)",
    )
    assert one in found["items"]


# -- options --------------------------------------------------------------------------------------

FORBIDDEN, UNSUPPORTED = "FieldValueForbidden", "FieldValueNotSupported"
MATCH, INITIAL = "resourceVersionMatch", "sendInitialEvents"
NEEDS = f"Forbidden: {INITIAL} requires setting {MATCH} to NotOlderThan"
INVALID: list[tuple[str, dict[str, str], list[tuple[str, str, str]]]] = [
    (
        "C-48",
        {MATCH: "Exact"},
        [(MATCH, FORBIDDEN, f"Forbidden: {MATCH} is forbidden unless resourceVersion is provided")],
    ),
    (
        "C-49",
        {MATCH: "Exact", "resourceVersion": "0"},
        [(MATCH, FORBIDDEN, f'Forbidden: {MATCH} "exact" is forbidden for resourceVersion "0"')],
    ),
    (
        "C-50",
        {MATCH: "Foo", "resourceVersion": "5"},
        [
            (
                MATCH,
                UNSUPPORTED,
                'Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""',
            )
        ],
    ),
    (
        "C-51",
        {INITIAL: "false"},
        [(INITIAL, FORBIDDEN, f"Forbidden: {INITIAL} is forbidden for list")],
    ),
    (
        "LW-085",
        {MATCH: "Exact", "resourceVersion": "5", "continue": "x"},
        [(MATCH, FORBIDDEN, f"Forbidden: {MATCH} is forbidden when continue is provided")],
    ),
    ("C-69", {"watch": "1", INITIAL: "true"}, [(MATCH, FORBIDDEN, NEEDS)]),
    (
        "C-69 with Exact",
        {"watch": "1", INITIAL: "true", MATCH: "Exact"},
        [
            (MATCH, FORBIDDEN, NEEDS),
            (MATCH, UNSUPPORTED, 'Unsupported value: "Exact": supported values: "NotOlderThan"'),
        ],
    ),
    (
        "LW-090",
        {"watch": "1", "resourceVersion": "5", MATCH: "NotOlderThan"},
        [
            (
                MATCH,
                FORBIDDEN,
                f"Forbidden: {MATCH} is forbidden for watch unless {INITIAL} is provided",
            )
        ],
    ),
]


@pytest.mark.parametrize(
    ("query", "causes"), [one[1:] for one in INVALID], ids=[o[0] for o in INVALID]
)
async def test_c48_to_c51_c69_options_that_do_not_go_together(
    wire: Wire, query: dict[str, str], causes: list[tuple[str, str, str]]
) -> None:  # LW C-48, LW C-49, LW C-50, LW C-51, LW C-69; field case A04
    got = await wire.ask(N, query)

    texts = [f"{field}: {body}" for field, _, body in causes]
    said = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    assert refusal_of(got) == (422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {said}')
    assert got.json()["details"] == {
        "group": "meta.k8s.io",
        "kind": "ListOptions",
        "causes": [
            {"reason": reason, "message": body, "field": field} for field, reason, body in causes
        ],
    }


@pytest.mark.parametrize("value", ["abc", ""])
async def test_c37_a_limit_that_is_no_number(wire: Wire, value: str) -> None:  # LW C-37
    said = f'strconv.ParseInt: parsing "{value}": invalid syntax'
    assert await wire.refusal(N, {"limit": value}) == (400, "BadRequest", said)


async def test_c38_a_negative_limit(wire: Wire) -> None:  # LW C-38
    assert len(names(await wire.ask(N, {"limit": "-5"}))) == 12


async def test_c40_a_page(wire: Wire) -> None:  # LW C-40
    got = await wire.ask(N, {"limit": "5"})

    assert (len(names(got)), meta(got)["remainingItemCount"]) == (5, 7)
    assert meta(got)["continue"]


async def test_c42_a_page_of_a_selector(wire: Wire) -> None:  # LW C-42
    got = await wire.ask(N, {"limit": "5", "labelSelector": "nodus.dev/job"})

    assert "continue" in meta(got)
    assert "remainingItemCount" not in meta(got)


async def test_c43_the_limit_of_a_cached_list(wire: Wire) -> None:  # LW C-43
    got = await wire.ask(N, {"limit": "5", "resourceVersion": "0"})

    assert (len(names(got)), set(meta(got))) == (12, {"resourceVersion"})


@pytest.mark.parametrize("target", [N, f"{N}/train-0-e1", f"{N}?watch=1"])
async def test_c52_a_version_that_is_no_number(wire: Wire, target: str) -> None:  # LW C-52
    sign = "&" if "?" in target else "?"
    assert await wire.refusal(f"{target}{sign}resourceVersion=abc") == (
        400,
        "BadRequest",
        'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: '
        'parsing "abc": invalid syntax',
    )


async def test_c54_tokens_that_are_none(wire: Wire) -> None:  # LW C-54
    token = meta(await wire.ask(N, {"limit": "5"}))["continue"]
    code, reason, said = await wire.refusal(N, {"continue": "xx"})

    assert (code, reason) == (400, "BadRequest")
    assert said.startswith("invalid continue token: continue key is not valid: ")
    assert await wire.refusal(N, {"continue": token, "resourceVersion": "5"}) == (
        400,
        "BadRequest",
        "specifying resource version is not allowed when using continue",
    )


async def test_c90_a_time_limit_that_is_none(wire: Wire) -> None:  # LW C-90
    code, reason, said = await wire.refusal(N, {"timeout": "xyz"})

    assert (code, reason) == (400, "BadRequest")
    assert said.startswith("invalid timeout specified in the request URL - ")


# -- selectors ------------------------------------------------------------------------------------

TRAIN = ["train-0-e1", "train-1-e1", "train-2-e1"]


@pytest.mark.parametrize(
    ("target", "query", "expected"),
    [
        (N, "labelSelector=nodus.dev/job!=fit", TRAIN),  # LW C-56
        (N, "labelSelector=absent!=train&limit=500&fieldSelector=spec.slot!=0", TRAIN[1:]),
        (f"{V1}/namespaces/sizes/attempts", "labelSelector=x%3E5", ["sized-1-e1"]),  # LW C-58
        (f"{V1}/namespaces/sizes/attempts", "labelSelector=x%3C5", ["sized-0-e1"]),
        (N, "fieldSelector=status.phase%3DRunning,spec.slot%3D0", TRAIN[:1]),  # LW C-59
        (N, "fieldSelector=metadata.name%3Dnope", []),  # LW C-62
        (N, "labelSelector=nodus.dev/job%3Dtrain&labelSelector=nodus.dev/job", TRAIN),  # LW C-63
    ],
)
async def test_c56_to_c63_selectors(
    wire: Wire, target: str, query: str, expected: list[str]
) -> None:
    assert names(await wire.ask(f"{target}?{query}")) == expected


async def test_c60_without_a_reason(wire: Wire) -> None:  # LW C-60
    found = names(await wire.ask(N, {"fieldSelector": "status.reason="}))

    assert (len(found), "train-2-e1" in found) == (11, False)


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ("a in (x,", "unable to parse requirement: found '', expected: ',', or identifier"),
        (
            "a>1x",
            "unable to parse requirement: values[0]: Invalid value: \"1x\": for 'Gt', 'Lt' "
            "operators, the value must be an integer",
        ),
    ],
)
async def test_c57_label_selectors_that_cannot_be_read(
    wire: Wire, selector: str, said: str
) -> None:  # LW C-57, LW-082
    for query in ({}, {"watch": "1"}):
        refused = await wire.refusal(N, query | {"labelSelector": selector})
        assert refused == (400, "BadRequest", said)


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ("spec.foo=1", "field label not supported: spec.foo"),  # LW C-61
    ],
)
async def test_c61_field_selectors_that_cannot_be_read(
    wire: Wire, selector: str, said: str
) -> None:  # LW-082
    for query in ({}, {"watch": "1"}):
        refused = await wire.refusal(N, query | {"fieldSelector": selector})
        assert refused == (400, "BadRequest", said)


async def test_c84_shards(wire: Wire) -> None:  # LW C-84, LW-166, LW-167
    uid = "object.metadata.uid"
    low = f"shardRange({uid},'0x0000000000000000','{HALF}')"
    high = f"shardRange( {uid} , \"{HALF}\",'0x10000000000000000')"
    parts = [await wire.ask(N, {"shardSelector": text}) for text in (low, high)]
    page = await wire.ask(N, {"shardSelector": low, "limit": "1"})
    table = await wire.ask(N, {"shardSelector": low}, accept=T)
    whole = await wire.ask()

    found = [names(part) for part in parts]
    assert not set(found[0]) & set(found[1])
    assert sorted(found[0] + found[1]) == names(whole)
    assert [meta(part)["shardInfo"] for part in parts] == [
        {"selector": f"shardRange({uid}, '0x0000000000000000', '{HALF}')"},
        {"selector": f"shardRange({uid}, '{HALF}', '0x10000000000000000')"},
    ]
    assert "continue" in meta(page)
    assert "remainingItemCount" not in meta(page)
    assert meta(table)["shardInfo"] == meta(page)["shardInfo"] == meta(parts[0])["shardInfo"]
    assert "shardInfo" not in meta(whole)


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        (
            f"shardRange(object.metadata.uid,'0x0','{HALF}')",
            'hexStart must be a 0x-prefixed 16-digit hex value, got "0x0" (did you mean '
            '"0x0000000000000000"?)',
        ),
        (
            f"shardRange(object.metadata.uid,'0x0000000000000000','{HALF}') || "
            f"shardRange(object.metadata.namespace,'0x0000000000000000','{HALF}')",
            'all shard ranges must use the same field, got "object.metadata.uid" and '
            '"object.metadata.namespace"',
        ),
        (f"shardRange(object.metadata.uid,'0x0000000000000000','{HALF}') && true", None),
    ],
)
async def test_c85_shards_that_say_nothing(
    wire: Wire, selector: str, said: str | None
) -> None:  # LW C-85, LW-164
    code, reason, text = await wire.refusal(N, {"shardSelector": selector})

    assert (code, reason) == (400, "BadRequest")
    assert text.startswith("invalid shard selector: ")
    assert said is None or text == f"invalid shard selector: {said}"


async def test_nothing_else_reads_a_body(wire: Wire) -> None:  # LW-194
    """A type of body that is not read is 415 on the one path that reads any."""
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    got = await wire.ask(review, method="POST", content=b"a: b", content_type="application/yaml")
    other = await wire.ask(method="POST", content=b"a: b", content_type="application/yaml")

    assert refusal_of(got) == (
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/vnd.kubernetes.protobuf",
    )
    assert other.status_code == 405


async def test_identity_headers_are_nobodys(wire: Wire) -> None:  # LW-064, AS-042
    """They count on a connection with the aggregator's certificate, which nobody has here."""
    for name in ("x_remote_user", "x_remote_group", "x_remote_uid", "x_remote_extra_scopes"):
        sent: dict[str, Any] = {name: "system:masters", "authorization": "Bearer nothing"}
        got = await wire.ask(A, **sent)
        assert refusal_of(got) == (401, "Unauthorized", "Unauthorized")
