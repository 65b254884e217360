"""Who may do what: credentials, membership, refusals to the letter."""

from datetime import timedelta
from typing import Any

import orjson
import pytest
from tests.apiserver.conftest import ALICE, START, A, N, Replica, replica_of, running
from tests.asgi_client import AsgiClient
from tests.watchcache.conftest import until

from nodus_api.apiserver.authentication import bearer_token
from nodus_api.tasks import end, spawn
from nodus_api.tokens import make_token

O = N.replace("example", "other")  # noqa: E741  the other project's list, beside A and N
WRONG = "nonsense"
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def status_of(got: Any) -> Any:
    return orjson.loads(got.body)


async def changed(replica: Replica) -> None:
    """Wait until the access view has everything that the tables say."""
    await until(lambda: replica.app.access.view.rev == len(replica.tables.log))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bEaReR abc extra", "abc"),  # AS-042
        (" Bearer abc ", "abc"),
        ("Basic abc", None),
        ("Bearer", None),
        ("Bearer  abc", None),
        ("", None),
        (None, None),
    ],
)
def test_a_bearer_token_is_the_second_word(header: str | None, token: str | None) -> None:
    assert bearer_token(header) == token


async def test_no_credential_is_401(replica: Replica) -> None:  # AS-055, LW-186
    got = await replica.stranger.get(N)

    found = status_of(got)
    assert got.status == 401
    assert (found["message"], found["reason"], found["metadata"]) == (
        "Unauthorized",
        "Unauthorized",
        {},
    )
    assert "details" not in found
    assert got.headers["www-authenticate"] == 'Bearer realm="nodus"'
    assert got.headers["cache-control"] == "no-cache, private"  # AS-058


@pytest.mark.parametrize("path", ["/apis", "/metrics", "/nope", "/livez/ping", N, REVIEW])
async def test_a_credential_is_asked_for_first(replica: Replica, path: str) -> None:  # LW-021
    assert (await replica.stranger.get(path)).status == 401


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/version", "/docs/errors"])
async def test_what_is_open_to_everybody(replica: Replica, path: str) -> None:  # AS-047
    assert (await replica.stranger.get(path)).status == 200
    wrong = AsgiClient(replica.app, token=WRONG)
    assert (await wrong.get(path)).status == 401  # AS-042: present, but not accepted


@pytest.mark.parametrize(
    "token",
    [
        "nonsense",
        ALICE.text[:-1] + ("A" if ALICE.text[-1] != "A" else "B"),  # a typo
        make_token(b"alice...", b"x" * 32).text,  # right id, wrong secret
        make_token(b"nobody..", b"x" * 32).text,
        "x" * 20_000,  # AS-071
    ],
)
async def test_a_wrong_token_is_401(replica: Replica, token: str) -> None:
    assert (await AsgiClient(replica.app, token=token).get(N)).status == 401


async def test_an_expired_token_is_401(replica: Replica) -> None:  # AS-067
    text = make_token(b"short...", b"s" * 32)
    replica.tables.token(text, "bob", ("nodus:admins",), START + timedelta(minutes=1))
    await changed(replica)
    bob = AsgiClient(replica.app, token=text.text)

    assert (await bob.get(N)).status == 200
    await replica.advance(61)
    assert (await bob.get(N)).status == 401


async def test_a_revoked_token_is_401_and_its_watches_end(replica: Replica) -> None:  # AS-054
    async with replica.alice.open("GET", f"{N}?watch=1&resourceVersion={replica.rev}") as stream:
        await until(lambda: len(replica.app.watches) == 1)
        replica.tables.revoke(ALICE.id)
        await changed(replica)
        ticking = spawn("tick", replica.advance(2))
        assert await stream.line() is None
        await end(ticking)

    assert (await replica.alice.get(N)).status == 401


async def test_a_watch_ends_when_the_membership_does(replica: Replica) -> None:  # LW-150
    async with replica.alice.open("GET", f"{N}?watch=1") as stream:
        await stream.events(12)
        replica.tables.remove_member("example", "user", "alice")
        assert await stream.line() is None

    assert (await replica.alice.get(N)).status == 403


async def test_a_token_that_expires_ends_its_watches(replica: Replica) -> None:  # AS-054
    text = make_token(b"short...", b"s" * 32)
    replica.tables.token(text, "bob", ("nodus:admins",), START + timedelta(seconds=90))
    await changed(replica)
    bob = AsgiClient(replica.app, token=text.text)
    async with bob.open("GET", f"{N}?watch=1") as stream:
        await stream.events(12)
        await replica.advance(119)
        assert stream.idle()
        await replica.advance(2)
        assert await stream.line() is None


async def test_uses_are_written_once_a_minute(replica: Replica) -> None:  # AS-067
    for _ in range(3):
        await replica.alice.get(N)
    assert replica.tables.used == []
    await replica.advance(61)
    replica.tables.stir.set()
    await until(lambda: replica.tables.used == [ALICE.id])


async def test_guessing_is_slowed_down_by_address(replica: Replica) -> None:  # AS-075
    guesser = AsgiClient(replica.app, token=WRONG, address="198.51.100.7")
    answers = [(await guesser.get(N)).status for _ in range(22)]

    assert answers == [401] * 21 + [429]
    assert (await replica.alice.get(N)).status == 200  # another address
    await replica.advance(59)
    assert (await guesser.get(N)).status == 429
    await replica.advance(2)
    assert (await guesser.get(N)).status == 401


async def test_an_address_is_blocked_for_a_minute_from_the_last_guess(
    replica: Replica,
) -> None:  # AS-075
    guesser = AsgiClient(replica.app, token=WRONG, address="198.51.100.8")
    await guesser.get(N)
    await replica.advance(50)
    assert [(await guesser.get(N)).status for _ in range(21)] == [401] * 20 + [429]
    await replica.advance(30)
    assert (await guesser.get(N)).status == 429
    await replica.advance(31)
    assert (await guesser.get(N)).status == 401


async def test_before_the_tables_are_read_credentials_cannot_be_checked() -> None:  # AS-046
    replica = replica_of()
    starting = await replica.admin.get(N)
    replica.app.access.refused = True
    away = await replica.admin.get(N)

    assert (starting.status, status_of(starting)["reason"]) == (429, "TooManyRequests")
    assert (away.status, status_of(away)["reason"]) == (503, "ServiceUnavailable")
    assert starting.headers["retry-after"] == away.headers["retry-after"] == "1"
    # whoever asks how the server is gets an answer, with a credential too
    for path in ("/livez", "/readyz", "/version"):
        assert (await replica.admin.get(path)).status == (500 if path == "/readyz" else 200)


async def test_static_documents_wait_for_no_database() -> None:  # LW-034, AS-096
    replica = replica_of()
    stranger = AsgiClient(replica.app)
    for away in (False, True):
        replica.app.access.refused = away
        for path in ("/apis", "/apis/nodus.dev/v1", "/openapi/v2", "/openapi/v3"):
            assert (await replica.admin.get(path)).status == 200
            assert (await stranger.get(path)).status == 401
        assert (await replica.admin.get("/metrics")).status in (429, 503)

    async with running(replica):
        guesser = AsgiClient(replica.app, token=WRONG)
        assert (await guesser.get("/apis/nodus.dev/v1")).status == 401  # it can be checked now


# -- authorisation ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            O,
            'attempts.nodus.dev is forbidden: User "alice" cannot list resource "attempts" in API '
            'group "nodus.dev" in the namespace "other"',
        ),
        (
            f"{O}?watch=1",
            'attempts.nodus.dev is forbidden: User "alice" cannot watch resource "attempts" in '
            'API group "nodus.dev" in the namespace "other"',
        ),
        (
            f"{O}/a",
            'attempts.nodus.dev "a" is forbidden: User "alice" cannot get resource "attempts" in '
            'API group "nodus.dev" in the namespace "other"',
        ),
        (
            f"{O}?fieldSelector=metadata.name%3Da",  # AS-048
            'attempts.nodus.dev "a" is forbidden: User "alice" cannot list resource "attempts" in '
            'API group "nodus.dev" in the namespace "other"',
        ),
        (
            A,
            'attempts.nodus.dev is forbidden: User "alice" cannot list resource "attempts" in API '
            'group "nodus.dev" at the cluster scope',
        ),
        ("/metrics", 'forbidden: User "alice" cannot get path "/metrics"'),
        ("/readyz/database", 'forbidden: User "alice" cannot get path "/readyz/database"'),
    ],
)
async def test_a_refusal_to_the_letter(
    replica: Replica, target: str, message: str
) -> None:  # AS-056
    got = await replica.alice.get(target)

    found = status_of(got)
    assert (got.status, found["reason"], found["message"]) == (403, "Forbidden", message)
    assert found["details"].get("kind", "") in ("attempts", "")
    assert got.headers["x-content-type-options"] == "nosniff"


async def test_a_missing_project_is_refused_like_a_forbidden_one(
    replica: Replica,
) -> None:  # AS-057
    ghost = await replica.alice.get(N.replace("example", "ghost"))
    other = await replica.alice.get(O)

    assert ghost.status == other.status == 403
    assert status_of(ghost)["message"] == status_of(other)["message"].replace("other", "ghost")


async def test_a_group_opens_a_project(replica: Replica) -> None:  # AS-072
    text = make_token(b"carol...", b"c" * 32)
    replica.tables.token(text, "carol", ("team",))
    await changed(replica)
    carol = AsgiClient(replica.app, token=text.text)
    before = (await carol.get(O)).status
    replica.tables.member("other", "group", "team")
    await changed(replica)

    assert (before, (await carol.get(O)).status) == (403, 200)


async def test_discovery_is_open_to_every_user(replica: Replica) -> None:  # AS-073
    text = make_token(b"dave....", b"d" * 32)
    replica.tables.token(text, "dave", ())
    await changed(replica)
    dave = AsgiClient(replica.app, token=text.text)

    for path in ("/api", "/api/v1", "/apis", "/apis/nodus.dev", "/apis/nodus.dev/v1", "/openapi/v2",
                 "/openapi/v3", "/openapi/v3/apis/nodus.dev/v1", "/version"):  # fmt: skip
        assert (await dave.get(path)).status == 200


# -- access reviews --------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80, value >> 7])


def field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def protobuf_review(*spec: bytes) -> bytes:
    type_meta = field(1, b"authorization.k8s.io/v1") + field(2, b"SelfSubjectAccessReview")
    review = field(1, b"") + field(2, b"".join(spec)) + field(3, b"\x08\x00")
    return b"k8s\0" + field(1, type_meta) + field(2, review) + field(3, b"") + field(4, b"")


def resource_question(namespace: str, verb: str, resource: str = "attempts") -> bytes:
    return field(
        1,
        field(1, namespace.encode())
        + field(2, verb.encode())
        + field(3, b"nodus.dev")
        + field(4, b"*")
        + field(5, resource.encode()),
    )


@pytest.mark.parametrize(
    ("question", "allowed"),
    [
        (resource_question("example", "list"), True),
        (resource_question("other", "list"), False),
        (resource_question("", "list"), False),
        (resource_question("example", "delete"), False),
        (resource_question("example", "get", "jobs"), False),
        (field(2, field(1, b"/apis") + field(2, b"get")), True),
        (field(2, field(1, b"/metrics") + field(2, b"get")), False),
    ],
)
async def test_a_review_in_protobuf(replica: Replica, question: bytes, allowed: bool) -> None:
    got = await replica.alice.request(  # LW-023
        "POST",
        REVIEW,
        headers={"content-type": "application/vnd.kubernetes.protobuf"},
        body=protobuf_review(question),
    )

    found = status_of(got)
    assert (got.status, found["kind"]) == (201, "SelfSubjectAccessReview")
    assert found["status"] == {"allowed": allowed}


async def test_a_review_in_json(replica: Replica) -> None:  # LW-023
    attributes = {"namespace": "example", "verb": "watch", "group": "nodus.dev",
                  "resource": "attempts"}  # fmt: skip
    body = orjson.dumps({"spec": {"resourceAttributes": attributes}})
    got = await replica.alice.request(
        "POST", REVIEW, headers={"content-type": "application/json"}, body=body
    )

    found = status_of(got)
    assert found["status"] == {"allowed": True}
    assert found["spec"] == {"resourceAttributes": attributes}


async def test_a_review_is_answered_in_the_form_of_any_body(
    replica: Replica,
) -> None:  # LW-019, LW-055
    body = b'{"spec":{"nonResourceAttributes":{"path":"/apis","verb":"get"}}}'
    sent = {"content-type": "application/json"}
    got, compact, refused = [
        await replica.alice.request("POST", REVIEW, headers=sent | more, body=body)
        for more in (
            {"user-agent": "curl/8.5.0"},
            {"accept": "application/vnd.kubernetes.protobuf, */*"},  # as kubectl asks
            {"accept": "application/vnd.kubernetes.protobuf"},
        )
    ]

    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    assert got.body == orjson.dumps(orjson.loads(compact.body), option=options)
    assert (got.status, compact.status) == (201, 201)
    assert compact.body.count(b"\n") == 1
    assert (refused.status, status_of(refused)["reason"]) == (406, "NotAcceptable")


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/yaml", b"spec: {}", 415),
        ("application/json", b"{", 400),
        ("application/json", b"{}", 400),
        ("application/json", b'{"spec":{}}', 400),
        ("application/json", b'{"spec":{"resourceAttributes":{"verb":["get"]}}}', 400),
        ("application/json", b'{"spec":{"nonResourceAttributes":{"path":5}}}', 400),
        ("application/vnd.kubernetes.protobuf", b"nonsense", 400),
        ("application/vnd.kubernetes.protobuf", b"k8s\0\x12\xff", 400),
        ("application/vnd.kubernetes.protobuf", b"k8s\0\x12\x05a", 400),
    ],
)
async def test_a_review_that_cannot_be_read(
    replica: Replica, content_type: str, body: bytes, status: int
) -> None:
    got = await replica.alice.request(
        "POST", REVIEW, headers={"content-type": content_type}, body=body
    )

    assert got.status == status
    assert status_of(got)["fix"]


async def test_a_review_is_a_post(replica: Replica) -> None:
    got = await replica.alice.get(REVIEW)

    assert (got.status, got.headers["allow"]) == (405, "POST")
