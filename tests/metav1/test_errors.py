"""Errors and the registry: LW-010, LW-103, LW-114, LW-123, LW-180 to LW-202, AS-055, AS-056."""

from collections.abc import Iterator
from datetime import timedelta

import orjson
import pytest
from tests.metav1.each_error import ATTEMPTS, EACH

from nodus_api.metav1 import errors
from nodus_api.metav1.codes import CODES, Code, registry
from nodus_api.metav1.errors import APIError, FieldError, GroupResource
from nodus_api.metav1.status import StatusCause, StatusDetails
from nodus_api.settings import Settings

NAMESPACES = GroupResource(group="", resource="namespaces")


@pytest.mark.parametrize("name", EACH)
def test_every_error_is_a_whole_status(name: str) -> None:  # LW-180, LW-202
    error = EACH[name]
    status = error.to_status(request_id="0c8f", public_url="https://nodus.test/")
    code = CODES[error.reason]
    assert status.code == error.http_status in code.http
    assert status.reason == error.reason
    assert status.docs == f"https://nodus.test/docs/errors/{error.reason}"
    assert status.fix.endswith(".")
    assert status.request_id == "0c8f"
    body = orjson.loads(status.encode())
    assert [*body][:6] == ["kind", "apiVersion", "metadata", "status", "message", "reason"]
    assert [*body][-4:] == ["code", "docs", "fix", "requestId"]
    assert (body["kind"], body["apiVersion"], body["status"]) == ("Status", "v1", "Failure")
    assert str(error) == status.message


@pytest.mark.parametrize("name", EACH)
def test_retry_stands_in_header_and_details_alike(name: str) -> None:  # LW-183
    error = EACH[name]
    seconds = error.details.retry_after_seconds if error.details else None
    assert error.headers.get("Retry-After") == (None if seconds is None else str(seconds))
    assert (seconds is not None) == (
        error.http_status in (429, 503)
        or error.reason == "ServerTimeout"
        or name == "too-large-version"
    )


def test_every_registered_code_is_sent_by_something() -> None:  # LW-202
    sent = {error.reason for error in EACH.values()}
    causes = {
        cause.reason
        for error in EACH.values()
        if error.details
        for cause in error.details.causes or ()
    }
    registered = {code.reason for code in CODES.values() if code.http}
    assert sent == registered
    assert set(CODES) - registered == (causes - {None}) | {"FieldValueNotSupported"}


def test_every_error_class_is_registered_with_its_status() -> None:  # LW-202
    for kind in subclasses(APIError):
        assert int(kind.code) in CODES[kind.reason].http


def test_no_code_of_ours_comes_where_clients_go_by_the_word() -> None:  # LW-184, LW-192
    """Of an unknown reason a client takes the HTTP code; not where the reason itself counts."""
    known = {400, 401, 403, 404, 405, 406, 409, 413, 414, 415, 422, 429, 431, 500, 503, 504}
    for code in CODES.values():
        assert set(code.http) <= known | {410}
        assert 410 not in code.http or code.reason == "Expired"
    assert CODES.keys().isdisjoint({"Gone", "AlreadyExists"})


def subclasses(kind: type[APIError]) -> Iterator[type[APIError]]:
    for found in kind.__subclasses__():
        yield found
        yield from subclasses(found)


def test_a_code_is_registered_once() -> None:  # LW-202
    code = Code(reason="X", when="w.", remedy="r.")
    assert registry([code]) == {"X": code}
    with pytest.raises(ValueError, match="X is registered twice"):
        registry([code, code])


def test_without_a_public_url_docs_is_the_path() -> None:  # LW-202
    assert errors.docs_url("NotFound") == "/docs/errors/NotFound"


def test_details_are_left_out_when_empty() -> None:  # LW-180
    assert "details" not in EACH["bad-request"].to_status(request_id="r").to_wire()
    assert EACH["not-found-path"].to_status(request_id="r").to_wire()["details"] == {}  # LW-012


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unauthorized", "Unauthorized"),
        (
            "forbidden-namespaced",
            'attempts.nodus.dev is forbidden: User "alice" cannot list resource "attempts" in API '
            'group "nodus.dev" in the namespace "p"',
        ),
        (
            "forbidden-named",
            'attempts.nodus.dev "a" is forbidden: User "alice" cannot get resource "attempts" in '
            'API group "nodus.dev" in the namespace "p"',
        ),
        (
            "forbidden-cluster",
            'attempts.nodus.dev is forbidden: User "alice" cannot list resource "attempts" in API '
            'group "nodus.dev" at the cluster scope',
        ),
        ("forbidden-path", 'forbidden: User "alice" cannot get path "/metrics"'),
        ("not-found-object", 'attempts.nodus.dev "nope" not found'),
        ("not-found-path", "the server could not find the requested resource"),
        ("method-not-allowed", 'create is not supported on resources of kind "attempts.nodus.dev"'),
        ("not-acceptable", "only the following media types are accepted: application/json"),
        ("expired-watch", "too old resource version: 1 (4)"),
        ("expired-list", "The resourceVersion for the provided list is too old."),
        ("too-large-body", "Request entity too large: limit is 65536"),
        ("warming", "storage is (re)initializing"),
        ("shutting-down", "The apiserver is shutting down, please try again later."),
        ("too-many-requests", "Too many requests, please try again later."),
        ("internal-error", "Internal error occurred: 0c8f"),
        (
            "server-timeout",
            "The list operation against attempts.nodus.dev could not be completed at this time, "
            "please try again.",
        ),
        ("timeout", "Timeout: request did not complete within the allotted timeout"),
        ("too-large-version", "Timeout: Too large resource version: 1000, current: 42"),
    ],
)
def test_messages_are_kubernetes_own(name: str, message: str) -> None:  # LW-185 to LW-200, AS-056
    assert EACH[name].message == message


def test_a_challenge_only_without_the_front_proxy() -> None:  # AS-055
    assert errors.Unauthorized().headers == {"WWW-Authenticate": 'Bearer realm="nodus"'}
    assert errors.Unauthorized(challenge=False).headers == {}


def test_a_refusal_is_quoted_and_escaped_but_for_the_reason() -> None:  # AS-056
    error = errors.Forbidden.resource(
        ATTEMPTS, user='<a&"b">', verb="list", namespace="p", why="no <role>"
    )
    assert error.message == (
        'attempts.nodus.dev is forbidden: User "&lt;a&amp;\\"b\\"&gt;" cannot list resource '
        '"attempts" in API group "nodus.dev" in the namespace "p": no <role>'
    )
    assert error.headers == {"X-Content-Type-Options": "nosniff"}
    assert error.details == StatusDetails(group="nodus.dev", kind="attempts")
    named = errors.Forbidden.resource(ATTEMPTS, user="a", verb="get", name="<b>")
    assert named.message.startswith('attempts.nodus.dev "<b>" is forbidden: User "a" cannot get ')
    assert EACH["forbidden-named"].details == StatusDetails(
        group="nodus.dev", kind="attempts", name="a"
    )
    assert EACH["forbidden-path"].details == StatusDetails()


def test_a_core_resource_has_no_group() -> None:  # LW-016
    error = errors.NotFound.object(NAMESPACES, "x")
    assert error.message == 'namespaces "x" not found'
    assert error.details == StatusDetails(name="x", kind="namespaces")
    assert error.fix == "See which names exist: `kubectl get namespaces`."


def test_a_write_is_told_what_is_allowed() -> None:  # LW-010
    error = EACH["method-not-allowed"]
    assert error.headers == {"Allow": "GET, HEAD"}
    assert error.details == StatusDetails(group="nodus.dev", kind="attempts")


def test_an_old_token_comes_back_renewed() -> None:  # LW-114
    status = EACH["expired-continue"].to_status(request_id="r")
    assert status.to_wire()["metadata"] == {"continue": "dG9rZW4"}
    assert status.message.startswith(
        "The provided continue parameter is too old to display a consistent list result."
    )
    assert status.message.endswith("the first chunk was returned and now may show up in the list.")


def test_a_version_not_reached_names_its_cause() -> None:  # LW-103
    assert EACH["too-large-version"].details == StatusDetails(
        causes=(
            StatusCause(reason="ResourceVersionTooLarge", message="Too large resource version"),
        ),
        retry_after_seconds=1,
    )


@pytest.mark.parametrize(
    ("name", "code", "part"),
    [
        ("too-large-body", 413, "body"),
        ("too-large-url", 414, "URL"),
        ("too-large-headers", 431, "header block"),
    ],
)
def test_what_is_too_large_is_named(name: str, code: int, part: str) -> None:  # LW-193
    error = EACH[name]
    assert error.http_status == code
    assert part in error.fix
    assert error.headers == {"Connection": "close"}


def test_the_same_text_twice_is_said_once() -> None:  # section 4.2, as kube's aggregate does
    twice = FieldError(field="f", reason="FieldValueForbidden", body="Forbidden: f")
    error = errors.Invalid([twice, twice])
    assert error.message == 'ListOptions.meta.k8s.io "" is invalid: f: Forbidden: f'
    assert error.details is not None
    assert len(error.details.causes or ()) == 2


def test_an_impersonation_is_refused_to_the_letter() -> None:  # AS-025
    users = GroupResource(group="", resource="users")
    error = errors.Forbidden.impersonation(
        users, user="alice", name="bob", namespace="", fix="Use bob's own token."
    )
    assert error.message == (
        'users "bob" is forbidden: User "alice" cannot impersonate resource "users" in API group '
        '"" at the cluster scope'
    )
    assert error.details == StatusDetails(name="bob", kind="users")
    assert (error.code, error.fix) == (403, "Use bob's own token.")


def test_expired_tells_how_much_history_is_kept() -> None:  # LW-192, LW-202
    """Whoever keeps a resourceVersion over night must learn that it cannot work."""
    settings = Settings()
    watch = f"{settings.watchcache_window // timedelta(minutes=1)} minutes"
    exact = f"{settings.feed_retention // timedelta(hours=1)} hour"
    page = CODES["Expired"].when
    assert f"{watch} back (the setting NODUS_WATCHCACHE_WINDOW)" in page
    assert f"{exact} (NODUS_FEED_RETENTION)" in page
    assert "a list is always a new start" in CODES["Expired"].remedy
    told = f"{watch} back (the default of NODUS_WATCHCACHE_WINDOW)"
    assert told in EACH["expired-watch"].fix
    for name in ("expired-list", "expired-continue"):
        assert f"{exact} (the default of NODUS_FEED_RETENTION)" in EACH[name].fix
