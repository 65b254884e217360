"""Local machines between two tenants: wiped to the last trace, and assigned again (SC-343)."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.suppliers.conformance import INSTALLATION, an_intent, view_when
from tests.suppliers.conftest import LocalFleet
from tests.suppliers.test_local import content, dead, shell, whole

from nodus_api.runner import files
from nodus_api.runner.identity import read_identity
from nodus_api.runner.session import members
from nodus_api.suppliers.supplier import (
    Invalid,
    MachineCondition,
    MachineIntent,
    NoCapacity,
    Verdict,
)

RUNNING = MachineCondition.RUNNING


def tenant(key: str, fence: int, script: str) -> MachineIntent:
    intent = an_intent(key, *shell(script))
    return replace(intent, fence=fence, token=f"token-{fence}-of-{key}")


def everything_in(folder: Path) -> bytes:
    """Return the content of every file below a folder."""
    found = b""
    for where, _, names in os.walk(folder):
        for name in names:
            found += (Path(where) / name).read_bytes()
    return found


async def a_tenant(fleet: LocalFleet, key: str = "one") -> Path:
    """Start a machine whose program writes a secret, leaves a child behind, and runs on."""
    script = (
        "umask 077; echo hush > secret.txt; mkdir -p deep/er; echo hush > deep/er/file;"
        " (trap '' TERM; exec sleep 601) & echo $! > child.pid; echo ready; exec sleep 600"
    )
    await fleet.supplier.create(tenant(key, 1, script))
    directory = fleet.root / "machines" / key
    await whole(directory / files.STDOUT)
    return directory


async def test_a_wipe_leaves_nothing_of_the_tenant(fleet: LocalFleet) -> None:  # SC-343
    directory = await a_tenant(fleet)
    identity = read_identity(directory)
    assert identity is not None
    (child,) = [int(one.read_text()) for one in directory.rglob("child.pid")]

    await fleet.supplier.wipe("one")

    assert dead(child)
    assert members(identity.pid) == []
    assert os.listdir(directory) == []
    left = everything_in(fleet.root / "machines")
    assert b"hush" not in left
    assert b"token-1" not in left
    view = await fleet.supplier.find("one")
    assert view is not None
    assert (view.condition, view.exit) == (RUNNING, None)
    assert view.billing_start == identity.started_at


async def test_a_wiped_machine_keeps_its_slot(fleet: LocalFleet) -> None:  # SC-710
    await a_tenant(fleet)
    await fleet.supplier.wipe("one")
    (offer,) = await fleet.supplier.offers()
    assert offer.available == 1
    await a_tenant(fleet, "two")
    with pytest.raises(NoCapacity):
        await fleet.supplier.create(tenant("three", 1, "true"))
    assert [one.key async for one in fleet.supplier.list_owned(INSTALLATION)] == ["one", "two"]


async def test_the_next_tenant_gets_its_own_program_and_token(fleet: LocalFleet) -> None:
    directory = await a_tenant(fleet)
    await fleet.supplier.wipe("one")
    second = tenant("one", 2, "ls; echo second")

    await fleet.supplier.assign("one", second, second.token)

    await whole(directory / files.STDOUT)
    assert (directory / files.STDOUT).read_bytes() == b"second\n"
    assert content(directory / files.TOKEN) == second.token.encode()
    assert json.loads((directory / files.INTENT).read_text())["fence"] == 2
    view = await view_when(fleet.supplier, "one", lambda one: one.exit is not None)
    assert view.exit is not None
    assert view.exit.exit_code == 0


async def test_assigning_twice_on_one_fence_starts_once(fleet: LocalFleet) -> None:  # SC-702
    directory = await a_tenant(fleet)
    await fleet.supplier.wipe("one")
    starts = fleet.root / "starts"
    second = tenant("one", 2, f"echo once >> {starts}; exec sleep 600")
    for _ in range(3):
        await fleet.restarted().assign("one", second, second.token)
    other = replace(second, token=f"{second.token}-too")
    await fleet.supplier.assign("one", other, other.token)
    await whole(starts)
    await fleet.supplier.assign("one", second, second.token)
    assert content(starts) == b"once\n"
    assert content(directory / files.TOKEN) == second.token.encode()


async def test_a_wipe_is_repeated_without_effect(fleet: LocalFleet) -> None:  # SC-343
    await a_tenant(fleet)
    for _ in range(2):
        await fleet.restarted().wipe("one")
    second = tenant("one", 2, "echo there; exec sleep 600")
    await fleet.supplier.assign("one", second, second.token)
    await whole(fleet.root / "machines" / "one" / files.STDOUT)
    await fleet.supplier.wipe("one")  # it is wiped for a third one now
    assert os.listdir(fleet.root / "machines" / "one") == []
    with pytest.raises(Invalid, match="fence 2"):
        await fleet.supplier.assign("one", second, second.token)


async def test_what_is_not_wiped_is_not_assigned(fleet: LocalFleet) -> None:  # SC-343
    await a_tenant(fleet)
    second = tenant("one", 2, "true")
    with pytest.raises(Invalid, match="not wiped"):
        await fleet.supplier.assign("one", second, second.token)
    for key in ("absent", "../one"):
        with pytest.raises(Invalid):
            await fleet.supplier.wipe(key)
        with pytest.raises(Invalid):
            await fleet.supplier.assign(key, tenant(key, 2, "true"), "token")


async def test_a_late_create_of_a_wiped_machine_starts_nothing(fleet: LocalFleet) -> None:
    """SC-603: a deposed leader repeats a create; the machine has no tenant by now."""
    directory = await a_tenant(fleet)
    await fleet.supplier.wipe("one")
    view = await fleet.supplier.create(tenant("one", 1, "echo late"))
    assert view.condition is RUNNING
    assert os.listdir(directory) == []


async def test_a_wiped_machine_is_deleted_like_any_other(fleet: LocalFleet) -> None:  # SC-712
    await a_tenant(fleet)
    await fleet.supplier.wipe("one")
    await fleet.supplier.delete("one")
    assert (await fleet.supplier.prove_deleted("one")).verdict is Verdict.GONE
    assert await fleet.supplier.find("one") is None
    assert not (fleet.root / "machines" / ".warm" / "one").exists()
    with pytest.raises(Invalid):
        await fleet.supplier.wipe("one")


async def test_a_tenant_cannot_pass_for_a_wiped_machine(fleet: LocalFleet) -> None:  # SC-711
    """What a program writes into its own directory is no mark of ours."""
    script = 'echo \'{"wiped": true, "fence": 9}\' > ../warm.json; echo ready; exit 3'
    await fleet.supplier.create(tenant("one", 1, script))
    gone = MachineCondition.GONE
    view = await view_when(fleet.supplier, "one", lambda one: one.condition is gone)
    assert view.exit is not None
