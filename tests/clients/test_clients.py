"""Every client, unmodified, during writes, over its watches' ends and one restart of the server.

What was found about each, and what the server must do for it:

- client-go's informers and RetryWatcher resume from the last version after a clean end, after 429
  and after a refused connection, so a restart costs no relist (LW-147, LW-153, LW-154). With
  KUBE_WATCHLIST_INCONSISTENCY_DETECTOR a list at the exact version of the end bookmark must equal
  the initial events (LW-139, LW C-83). Over JSON the detector fails every metadata informer, at
  any server: client-go takes the kind off what a watch brings and leaves it on a list's items,
  which carry it in kube-apiserver too (LW-053). The informer here takes it off by a transform.
- The Python client goes on from the last version seen when the server ends a watch, in its own loop
  (LW-134, LW C-81); with `timeout_seconds` its caller does. It asks for one stream with a state in
  rising version only once.
- kr8s, lightkube and Node's `fetch` go on from the last event's version (LW-134, LW-135); of a
  refused connection lightkube's `watch` raises, and its user goes on from that version.
- The informer of client-node stops at an error and is started again by its user, from the last
  version that it has; clean ends it goes on from by itself (LW-144, LW C-82).
- kopf shows the newest of what came together, so versions may be left out, and asks for the
  list and a watch of namespaces (LW-016).
- `kubectl get -w` asks for no time and for no bookmarks, ends with its watch (exit code 0), and
  begins with the state when it is run again; of a refused connection it tells and exits 1. The
  stream of `kubectl get --raw` ends by the server's time, and is resumed like any.
- pykube-ng begins with the state each time, with a final slash in discovery (LW-013).
"""

import re

import pytest
from tests.clients import judging
from tests.clients.catalog import HAD, WANTED
from tests.clients.conftest import Period

pytestmark = [pytest.mark.conformance, pytest.mark.slow]  # a writing period of real seconds

MERGES = {"kopf"}
GROUPS = ["", "authentication.k8s.io", "authorization.k8s.io", "nodus.dev"]
"""Clients that leave out versions which came together with newer ones."""
LISTS = {
    "py-list": "all",
    "py-pages": "all",
    "py-dynamic-list": "default",
    "aio-list": "all",
    "lightkube-list": "all",
    "go-pager": "all",
}
RISING = ["kr8s", "lightkube", "pykube", "py-watch", "node-fetch"]
RISING += ["kubectl-1.32-raw", "kubectl-1.37-raw"]
NAMES = ("kr8s-list", "pykube-list")
OF_A_RESTART = re.compile(
    r"429|too ?many|try again later|503|unavailable|initializ|cannot be reached"
    r"|connect|refused|reset|closed|eof|fetch failed|terminated",
    re.IGNORECASE,
)
WATCHERS = [
    pytest.param(name, client, scope, id=client)
    for name, one in WANTED.items()
    for client, scope in one.watchers.items()
]
PROGRAM = {client: name for name, one in WANTED.items() for client in one.clients}


@pytest.fixture
def had(request: pytest.FixtureRequest) -> None:
    """Skip where the client's program could not be had."""
    given = request.getfixturevalue("client") if "client" in request.fixturenames else None
    name = PROGRAM[given] if given else request.getfixturevalue("name")
    if name not in HAD:
        pytest.skip(WANTED[name].missing)


pytestmark.append(pytest.mark.usefixtures("had"))


@pytest.mark.parametrize(("name", "client", "scope"), WATCHERS)
def test_a_client_sees_each_change_once_and_in_order(
    name: str, client: str, scope: str, period: Period
) -> None:  # LW-131, LW-132, LW-135, LW-139
    """LW C-81 is this of `py-watch`, C-82 of `node-informer`, C-83 of the informers of client-go.

    Each over three ends of its watch by the server's own time; C-83 with the detector on.
    """
    told = period.told[client]
    if client in MERGES:
        judging.rising(judging.seen_of(told), period.states(scope))
        return
    segments = judging.segments_of(told)

    assert judging.followed(segments, period.states(scope)) > 0


@pytest.mark.parametrize(("name", "client", "scope"), WATCHERS)
def test_at_the_end_a_client_has_what_the_server_lists(
    name: str, client: str, scope: str, period: Period
) -> None:
    held = judging.newest_of(period.told[client])
    due = judging.by_name(period.fresh[scope])
    if "metadata" in client:
        held = [one["metadata"] for one in held]
        due = [one["metadata"] for one in due]

    if client == "kr8s":  # it names the kind after the resource's singular name, at any server
        held = [one | {"kind": "Attempt"} for one in held]

    assert held == due


@pytest.mark.parametrize("client", RISING)
def test_a_watch_begins_in_rising_version(client: str, period: Period) -> None:  # LW-134
    judging.in_rising_version(judging.segments_of(period.told[client]))


@pytest.mark.parametrize("client", [client for client in PROGRAM if client.startswith("go-")])
def test_an_informer_seldom_lists_again(client: str, period: Period) -> None:  # LW-147, LW-153
    """Neither ends of watches nor a restart make it, as a rule.

    It may where it meets the very moment in which the old server closes its door, and where a slow
    machine leaves less than a second of the watch that began with the state (LW-145).
    """
    again = [one.said for one in period.told[client] if one.said.get("stream") == "relist"]

    assert len(again) <= 2


@pytest.mark.parametrize("client", list(PROGRAM))
def test_only_the_restart_is_an_error(client: str, period: Period) -> None:  # LW-144, LW-147
    """None before it, and then what a stopping or starting server tells: 429, 503, no connection.

    So no exception and no error callback at the ends of watches (LW C-81, C-82).

    A server that begins answers 429 with Retry-After until it has loaded (AS-096), which every
    client here gets over.
    """
    found = [one for one in period.told[client] if "error" in one.said]

    assert [one.said for one in found if one.at < period.stopped] == []
    assert [one.said for one in found if not OF_A_RESTART.search(one.said["error"])] == []


@pytest.mark.parametrize("client", list(LISTS))
def test_a_list_is_a_state_of_the_log(client: str, period: Period) -> None:  # LW-101, LW-110
    told, scope = period.told[client], period.scopes[LISTS[client]]

    assert judging.listed(told, period.truth, scope) > 0


@pytest.mark.parametrize("client", ["go-pager"])
def test_pages_one_by_one_are_a_state_too(client: str, period: Period) -> None:
    """Each walk over pages is of one version, which client-go does not tell: some state fits."""
    states = period.states("all")
    walks = [one.said for one in period.told[client] if "each" in one.said]
    for walk in walks:
        assert states.has({uid: int(rev) for uid, rev in walk["each"]})
        assert walk["paged"]


@pytest.mark.parametrize("client", NAMES)
def test_a_list_of_names_is_a_state_of_the_log(client: str, period: Period) -> None:
    names = period.states("default").names()
    found = [one.said["names"] for one in period.told[client] if "names" in one.said]

    assert found
    assert [one for one in found if tuple(one) not in names] == []


@pytest.mark.parametrize("client", ["go-discovery"])
def test_discovery_finds_attempts(client: str, period: Period) -> None:  # LW-035, LW-230
    found = [one.said for one in period.told[client] if "groups" in one.said]

    assert found
    for one in found:
        assert sorted(one["groups"]) == GROUPS
        assert "nodus.dev/v1 attempts Attempt" in one["resources"]
        assert (one["minor"], sorted(one["openapi"])) == ("37", ["api/v1", "apis/nodus.dev/v1"])


@pytest.mark.parametrize("name", list(WANTED))
def test_a_program_ends_as_asked(name: str, period: Period) -> None:  # LW C-83: no panic
    one = period.programs[name]

    assert one.code == 0, one.errors()


@pytest.mark.parametrize("name", [name for name, one in WANTED.items() if one.watchers])
def test_a_client_that_lost_its_server_asks_seldom(
    name: str, period: Period
) -> None:  # field case B05, LW-145
    """At most a few requests a second and client, and its events flow again."""
    asked = [one for one in period.site.requests(name) if one["verb"] == "watch"]
    brief = [one for one in asked if one["code"] == 200 and one["ms"] < 1000]
    refused = [one for one in asked if one["code"] != 200]
    watchers = WANTED[name].watchers

    assert len(brief) <= 4 * len(watchers)
    assert len(refused) <= 4 * (period.started - period.stopped) * len(watchers)
    for client in watchers:
        assert [
            one for one in period.told[client] if one.at > period.started and "event" in one.said
        ]
