"""Requests in another user's name, sent straight to this server: AS-025."""

from typing import Any

import orjson
import pytest
from tests.apiserver.conftest import N, Replica, replica_of, running

from nodus_api.apiserver import ServerOptions

AT_CLUSTER = "at the cluster scope"
UIDS = "authentication.k8s.io"


def refused(what: str, resource: str, *, group: str = "", where: str = AT_CLUSTER) -> str:
    full = f"{resource}.{group}" if group else resource
    return (
        f'{full}{what} is forbidden: User "admin" cannot impersonate resource "{resource}" in API '
        f'group "{group}" {where}'
    )


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"Impersonate-User": "bob"}, refused(' "bob"', "users")),  # AS C38
        ({"impersonate-user": "bob", "Impersonate-Group": "x"}, refused(' "bob"', "users")),
        ({"Impersonate-Group": "nodus:admins"}, refused(' "nodus:admins"', "groups")),
        ({"Impersonate-Uid": "7"}, refused(' "7"', "uids", group=UIDS)),
        ({"Impersonate-Extra-Scopes": "view"}, refused(' "view"', "userextras", group=UIDS)),
        (
            {"Impersonate-User": "system:serviceaccount:team:robot"},
            refused(' "robot"', "serviceaccounts", where='in the namespace "team"'),
        ),
        ({"Impersonate-User": ""}, refused("", "users")),
        ({"Impersonate-Else": "x"}, refused("", "users")),
    ],
)
async def test_nobody_is_served_as_the_caller(
    replica: Replica, headers: dict[str, str], message: str
) -> None:  # AS-025
    got = await replica.admin.request("GET", N, headers=headers)

    found: Any = orjson.loads(got.body)
    assert (got.status, found["reason"], found["message"]) == (403, "Forbidden", message)
    assert "nodus token create --user" in found["fix"]  # LW-202


async def test_the_fix_names_the_user(replica: Replica) -> None:  # AS-025, LW-202
    got = await replica.admin.request("GET", N, headers={"Impersonate-User": "bob;x"})
    assert "`nodus token create --user 'bob;x'`" in orjson.loads(got.body)["fix"]


@pytest.mark.parametrize("path", ["/version", "/apis", "/nope", f"{N}/nope", f"{N}?watch=1"])
async def test_it_stands_before_all_but_the_credential(
    replica: Replica, path: str
) -> None:  # AS-025, AS-083
    headers = {"Impersonate-User": "bob"}
    assert (await replica.alice.request("GET", path, headers=headers)).status == 403
    assert (await replica.alice.request("POST", path, headers=headers)).status == 403
    if path != "/version":  # open to everybody
        assert (await replica.stranger.request("GET", path, headers=headers)).status == 401


async def test_behind_a_cluster_too() -> None:  # AS-025: until it is built there
    replica = replica_of(options=ServerOptions(standalone=False))
    async with running(replica):
        got = await replica.admin.request("GET", N, headers={"Impersonate-User": "bob"})
    assert got.status == 403
