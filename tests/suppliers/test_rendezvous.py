"""Where the ranks of a gang meet on this host (SC-143)."""

import json
import socket
from dataclasses import replace
from pathlib import Path

from tests.suppliers.conformance import an_intent
from tests.suppliers.conftest import LocalFleet

from nodus_api.runner import files
from nodus_api.suppliers.local import rendezvous as places
from nodus_api.suppliers.local.rendezvous import rendezvous
from nodus_api.suppliers.local.workdir import WorkDirectories
from nodus_api.suppliers.supplier import GangSeat, MachineIntent


def seat(rank: int, *, gang: str = "2b1f-workers", epoch: int = 1) -> GangSeat:
    return GangSeat(id=gang, rank=rank, size=2, epoch=epoch)


def made(directories: WorkDirectories, key: str, place: GangSeat) -> str:
    found = rendezvous(directories, key, place)
    if not directories.exists(key):
        directories.make(key, {}, "token")
    return found


def port_of(place: str) -> int:
    host, _, port = place.rpartition(":")
    assert host == "127.0.0.1"
    return int(port)


def test_all_ranks_of_an_epoch_meet_at_one_place(tmp_path: Path) -> None:
    first = made(WorkDirectories(tmp_path), "a", seat(0))

    assert made(WorkDirectories(tmp_path), "b", seat(1)) == first  # another process of ours
    assert made(WorkDirectories(tmp_path), "a", seat(0)) == first
    with socket.create_server(("127.0.0.1", port_of(first))):  # a program can have it
        pass


def test_no_two_gangs_meet_at_one_place(tmp_path: Path) -> None:
    directories = WorkDirectories(tmp_path)
    found = {
        made(directories, f"m{epoch}{gang}", seat(0, gang=gang, epoch=epoch))
        for gang in ("x", "y")
        for epoch in (1, 2, 3)
    }

    assert len(found) == 6


def test_a_port_in_use_or_taken_is_passed_over(tmp_path: Path) -> None:
    directories = WorkDirectories(tmp_path)
    wanted = port_of(made(directories, "a", seat(0)))
    directories.discard("a")
    with socket.create_server(("127.0.0.1", wanted)):
        assert port_of(made(directories, "b", seat(0))) == wanted + 1
    record = directories.root / ".rendezvous"
    kept = json.loads(record.read_text())
    record.write_text(json.dumps({"other/1": kept["2b1f-workers/1"] | {"port": wanted}}))

    assert port_of(made(directories, "c", seat(1))) == wanted + 1


def test_a_place_is_forgotten_with_the_last_machine(tmp_path: Path) -> None:
    directories = WorkDirectories(tmp_path)
    made(directories, "a", seat(0))
    made(directories, "b", seat(1))
    directories.discard("a")
    made(directories, "c", seat(0, epoch=2))
    assert set(json.loads((tmp_path / ".rendezvous").read_text())) == {
        "2b1f-workers/1",
        "2b1f-workers/2",
    }
    directories.discard("b")
    made(directories, "d", seat(1, epoch=2))

    assert set(json.loads((tmp_path / ".rendezvous").read_text())) == {"2b1f-workers/2"}
    assert port_of(places.rendezvous(directories, "e", seat(0))) >= places.FIRST_PORT


async def test_the_programs_are_told_the_place(fleet: LocalFleet) -> None:
    for rank in range(2):
        incarnation = replace(an_intent("x", "y").incarnation, gang=seat(rank))
        intent: MachineIntent = replace(
            an_intent(f"rank-{rank}", "/bin/sh", "-c", "exec sleep 60"), incarnation=incarnation
        )
        await fleet.restarted().create(intent)

    told = [
        json.loads((fleet.root / "machines" / f"rank-{rank}" / files.INTENT).read_text())["context"]
        for rank in range(2)
    ]
    assert told[0]["NODUS_RENDEZVOUS"] == told[1]["NODUS_RENDEZVOUS"]
    assert [one["NODUS_RANK"] for one in told] == ["0", "1"]
