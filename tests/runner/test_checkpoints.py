"""Checkpoints: copied, proposed, committed by the answer alone; and the programs that wait."""

import os
import shutil
import signal
from hashlib import sha256
from pathlib import Path

import pytest
from tests.runner.checkpointing import Ledger, a_program, a_state, keeping, kept, refusal, store
from tests.runner.conftest import Bench
from tests.runner.report_server import STALE, Reply, Report

from nodus_api.runner import files
from nodus_api.runner.trees import copy_tree


async def test_a_checkpoint_is_committed_by_the_answer_alone(bench: Bench) -> None:  # SC-642
    slot = bench.server.policy = Ledger(committing=False)
    side = await a_program(bench)
    state = a_state(bench.root / "state")

    side.say(checkpoint={"dir": str(state)}, completed=120, total=1000, id="mine")
    first = await bench.server.wait_for("checkpoint", count=1)
    await bench.server.wait_for("checkpoint", count=3)

    assert (side.committed(), side.answer("mine")) == (None, None)
    slot.committing = True
    await bench.until(lambda: side.answer("mine") is not None)
    assert side.answer("mine") == {"committed": True, "seq": 1}
    assert side.committed() == "1"
    path = store(bench) / "1" / "1"  # SC-126
    assert {name: first[name] for name in ("seq", "bytes", "uri", "cursor")} == {
        "seq": 1,
        "bytes": len("weights"),
        "uri": path.as_uri(),
        "cursor": {"completed": 120, "total": 1000},
    }
    assert first["sha256"] == copy_tree(path, bench.root / "again").sha256
    assert kept(bench) == ["1"]


async def test_a_repeat_has_a_new_n_and_the_same_content(bench: Bench) -> None:  # SC-645
    bench.server.policy = Ledger(committing=False)
    side = await a_program(bench)

    side.say(checkpoint={"dir": str(a_state(bench.root / "state"))})
    first = await bench.server.wait_for("checkpoint", count=1)
    second = await bench.server.wait_for("checkpoint", count=2)

    assert second["n"] > first["n"]
    assert second["ageMs"] >= first["ageMs"]
    same = ("seq", "bytes", "uri", "sha256")
    assert [second[name] for name in same] == [first[name] for name in same]


async def test_seqs_go_on_from_the_slot_s_last(bench: Bench) -> None:  # SC-142
    bench.server.policy = Ledger(last_seq=6)
    side = await a_program(bench, epoch=3)
    state = a_state(bench.root / "state")

    for seq in ("7", "8"):
        side.say(checkpoint={"dir": str(state)}, id=f"c{seq}")
        await bench.until(lambda seq=seq: side.committed() == seq)  # type: ignore[misc]  # mypy cannot infer a lambda's default

    assert kept(bench, epoch=3) == ["7", "8"]


async def test_what_was_saved_is_the_state_at_the_line(bench: Bench) -> None:
    slot = bench.server.policy = Ledger(committing=False)
    side = await a_program(bench)
    state = a_state(bench.root / "state", "old")
    side.say(checkpoint={"dir": str(state)})
    await bench.server.wait_for("checkpoint")

    a_state(state, "new")
    slot.committing = True
    await bench.until(lambda: side.committed() == "1")

    assert (store(bench) / "1" / "1" / "latest").read_text() == "old"


async def test_checkpoints_wait_while_the_server_is_away(bench: Bench) -> None:  # SC-643
    slot = bench.server.policy = Ledger()
    side = await a_program(bench)
    await bench.server.wait_for("heartbeat")
    await bench.server.stop()
    for text in ("one", "two"):
        side.say(checkpoint={"dir": str(a_state(bench.root / text, text))}, id=text)
    for completed in range(5):
        side.say(completed=completed, total=9)
    copies = bench.root / "copies"
    await bench.until(lambda: kept(bench) == ["1"] and (copies / "2" / "latest").is_symlink())
    assert side.committed() is None

    seen = len(bench.server.reports)
    await bench.server.start()
    await bench.until(lambda: side.committed() == "2")

    assert slot.last_seq == 2
    assert [side.answer(text) for text in ("one", "two")] == [
        {"committed": True, "seq": 1},
        {"committed": True, "seq": 2},
    ]
    texts = [(store(bench) / "1" / seq / "latest").read_text() for seq in ("1", "2")]
    assert texts == ["one", "two"]
    came = [report["kind"] for report in bench.server.reports[seen:]]
    assert came[:3].count("heartbeat") <= 1  # the latest alone
    assert bench.server.most_in_flight == 1


async def test_after_the_partition_limit_no_checkpoint_is_begun(bench: Bench) -> None:  # SC-643
    bench.server.policy = Ledger()
    side = await a_program(bench, partition_limit=0.0)

    side.say(checkpoint={"dir": str(a_state(bench.root / "state"))}, id="late")
    await bench.until(lambda: side.answer("late") is not None)

    answer = side.answer("late") or {}
    assert (answer["committed"], answer["message"]) == (
        False,
        "the server is away for too long: no new checkpoint is begun",
    )
    assert kept(bench) == []
    assert bench.live() != []


async def test_a_refused_checkpoint_is_told_and_the_count_set_right(bench: Bench) -> None:  # SC-142
    slot = Ledger()
    refused: list[int] = []

    def once(report: Report) -> Reply:
        if report["kind"] == "checkpoint" and not refused:
            refused.append(report["seq"])
            slot.last_seq = 4
            return refusal(4)
        return slot(report)

    bench.server.policy = once
    side = await a_program(bench)
    state = a_state(bench.root / "state")
    side.say(checkpoint={"dir": str(state)}, id="wrong")
    await bench.until(lambda: side.answer("wrong") is not None)
    assert side.answer("wrong") == {
        "committed": False,
        "message": "the server refused it: out of sequence",
    }
    assert kept(bench) == []

    side.say(checkpoint={"dir": str(state)}, id="right")
    await bench.until(lambda: side.answer("right") is not None)

    assert refused == [1]
    assert side.answer("right") == {"committed": True, "seq": 5}
    assert bench.live() != []


async def test_a_stale_epoch_ends_the_program_at_its_checkpoint(bench: Bench) -> None:  # SC-125
    slot = Ledger()

    def replaced(report: Report) -> Reply:
        return STALE if report["kind"] == "checkpoint" else slot(report)

    bench.server.policy = replaced
    side = await a_program(bench)
    side.say(checkpoint={"dir": str(a_state(bench.root / "state"))})

    assert await bench.finished() == 0

    assert bench.live() == []
    assert side.committed() is None
    assert bench.exit_json()["signal"] == 9


async def test_the_last_checkpoint_of_a_program_comes_before_its_end(bench: Bench) -> None:
    bench.server.policy = Ledger()  # SC-013: the program may still commit a checkpoint
    state = a_state(bench.root / "state")
    script = (
        f'trap \'echo {{\\"checkpoint\\":{{\\"dir\\":\\"{state}\\"}}}} > $NODUS_PROGRESS;'
        f" exit 0' TERM; touch {bench.root}/ready; while :; do sleep 0.02; done"
    )
    bench.prepare("/bin/sh", "-c", script, **keeping(bench))
    runner = await bench.run()
    await bench.until((bench.root / "ready").exists)

    runner.terminate()
    exited = await bench.server.wait_for("exited")

    assert bench.server.kinds()[-2:] == ["checkpoint", "exited"]
    assert (exited["exitCode"], exited["signal"]) == (0, None)
    assert kept(bench) == ["1"]


async def test_the_end_is_kept_back_until_the_last_commit(bench: Bench) -> None:  # SC-644
    slot = bench.server.policy = Ledger(committing=False)
    side = await a_program(bench)
    side.say(checkpoint={"dir": str(a_state(bench.root / "state"))})
    await bench.server.wait_for("checkpoint")
    (bench.root / "go").touch()
    await bench.until(lambda: not program_lives(bench))

    repeats = bench.server.kinds().count("checkpoint")
    await bench.server.wait_for("checkpoint", count=repeats + 2)
    assert not (bench.directory / files.EXIT).exists()
    slot.committing = True
    await bench.server.wait_for("exited")

    assert side.committed() == "1"
    assert bench.exit_json()["exitCode"] == 0


def program_lives(bench: Bench) -> bool:
    """Whether anything but the runner itself lives."""
    return bench.live() != [bench.runners[0].pid]


async def test_an_end_does_not_wait_long_for_a_server_that_is_away(bench: Bench) -> None:
    bench.server.policy = Ledger()
    side = await a_program(bench)
    await bench.server.stop()
    for text in ("one", "two"):
        side.say(checkpoint={"dir": str(a_state(bench.root / text, text))})
    (bench.root / "go").touch()

    await bench.until((bench.directory / files.EXIT).exists, seconds=10)
    await bench.server.start()
    await bench.server.wait_for("exited")

    kinds = bench.server.kinds()
    assert kinds[kinds.index("checkpoint") :] == ["checkpoint", "checkpoint", "exited"]
    assert kept(bench) == ["1", "2"]


async def test_a_checkpoint_is_asked_for_by_a_file_once_an_order(bench: Bench) -> None:  # SC-641
    slot = bench.server.policy = Ledger()
    side = await a_program(bench)
    now = side.channel / "checkpoint-now"
    slot.orders = [{"kind": "checkpointNow"}]
    await bench.until(now.exists)

    side.say(checkpoint={"dir": str(a_state(bench.root / "state"))})
    await bench.until(lambda: side.committed() == "1")
    beats = len(bench.server.reports)
    await bench.server.wait_for("heartbeat", count=beats + 3)
    assert not now.exists()

    slot.orders = []
    beats = len(bench.server.reports)
    await bench.server.wait_for("heartbeat", count=beats + 3)
    slot.orders = [{"kind": "checkpointNow"}]
    await bench.until(now.exists)


async def test_heartbeats_carry_the_cursor(bench: Bench) -> None:  # SC-641
    bench.server.policy = Ledger()
    side = await a_program(bench)
    assert "cursor" not in await bench.server.wait_for("heartbeat")

    side.say(completed=120, total=1000)

    def told() -> bool:
        cursors = [one["cursor"] for one in bench.server.reports if "cursor" in one]
        return cursors[-1:] == [{"completed": 120, "total": 1000}]

    await bench.until(told)


async def test_heartbeats_tell_how_long_ago_the_program_spoke(bench: Bench) -> None:  # SC-807
    """An idle session is known by it: the age grows until the program speaks again."""
    bench.server.policy = Ledger()
    side = await a_program(bench)
    assert "activeAgeMs" not in await bench.server.wait_for("heartbeat")

    def ages() -> list[int]:
        return [one["activeAgeMs"] for one in bench.server.reports if "activeAgeMs" in one]

    side.say(active=True)
    await bench.until(lambda: len(ages()) >= 3)
    assert ages() == sorted(ages())
    longest = ages()[-1]
    side.say(completed=1, total=2)
    await bench.until(lambda: ages()[-1] < longest)


async def test_nonsense_on_the_channel_changes_nothing(bench: Bench) -> None:
    bench.server.policy = Ledger()
    side = await a_program(bench)
    with (side.channel / "progress").open("wb") as fifo:
        fifo.write(b"\xff{\n\n[]\n" + b"x" * 10_000 + b"\n")
    side.say(checkpoint={"dir": "nowhere"}, id="none")
    side.say(checkpoint={"dir": str(a_state(bench.root / "state"))}, id="some")

    await bench.until(lambda: side.answer("some") is not None)

    assert side.answer("some") == {"committed": True, "seq": 1}
    assert side.answer("none") == {
        "committed": False,
        "message": f"there is no directory {bench.directory / files.WORK / 'nowhere'}",
    }


async def test_what_the_system_refuses_is_told_in_words(bench: Bench) -> None:  # SC-642
    bench.server.policy = Ledger()
    side = await a_program(bench)
    store(bench).parent.mkdir(parents=True, exist_ok=True)
    store(bench).write_text("a file lies where the checkpoints are to lie")
    side.say(checkpoint={"dir": "x" * 300}, id="long")
    side.say(checkpoint={"dir": str(a_state(bench.root / "state"))}, id="blocked")

    await bench.until(lambda: side.answer("blocked") is not None)

    assert side.answer("long") == {
        "committed": False,
        "message": "it could not be copied: the name is too long:"
        f" {bench.directory / files.WORK / ('x' * 300)}",
    }
    assert side.answer("blocked") == {
        "committed": False,
        "message": f"it could not be stored: not a directory: {store(bench) / '1'}",
    }


async def test_a_runner_killed_between_copy_and_commit_leaves_no_checkpoint(bench: Bench) -> None:
    bench.server.policy = Ledger(committing=False)  # SC-126
    side = await a_program(bench)
    side.say(checkpoint={"dir": str(a_state(bench.root / "state"))})
    await bench.server.wait_for("checkpoint")

    os.kill(bench.runners[0].pid, signal.SIGKILL)
    await bench.runners[0].wait()

    assert side.committed() is None
    assert kept(bench) == ["1"]  # bytes that nobody sees


@pytest.fixture
def saved(bench: Bench) -> tuple[Path, str]:
    """A checkpoint in the store, made by an earlier epoch, and its checksum."""
    path = store(bench) / "1" / "4"
    path.parent.mkdir(parents=True)
    measured = copy_tree(a_state(bench.root / "state"), path)
    return path, measured.sha256


async def test_a_program_goes_on_from_a_checked_copy(  # SC-143
    bench: Bench, saved: tuple[Path, str]
) -> None:
    path, checksum = saved
    bench.server.policy = Ledger(last_seq=4)
    bench.prepare(
        *(
            "/bin/sh",
            "-c",
            "cat $NODUS_RESTORE_DIR/latest; echo spoilt > $NODUS_RESTORE_DIR/latest",
        ),
        epoch=2,
        **keeping(bench),
        restore={"uri": path.as_uri(), "sha256": checksum},
    )
    await bench.run()

    started = await bench.server.wait_for("started")
    exited = await bench.server.wait_for("exited")

    assert started["restoreBytes"] == len("weights")
    assert exited["exitCode"] == 0
    for ending in (exited, bench.exit_json()):  # SC-644: they may be all that is ever read
        assert ending["restoreBytes"] == len("weights")
    assert (bench.directory / files.STDOUT).read_text() == "weights"
    assert (path / "latest").read_text() == "weights"


@pytest.mark.parametrize("harm", ["changed", "gone", "elsewhere", "unknown", "nonsense"])
async def test_a_checkpoint_that_is_not_what_was_stored_is_unavailable(  # SC-141
    bench: Bench, saved: tuple[Path, str], harm: str
) -> None:
    path, checksum = saved
    uri = path.as_uri()
    match harm:
        case "changed":
            (path / "inner" / "data").write_text("weighty")
        case "gone":
            shutil.rmtree(path)
        case "elsewhere":
            uri = a_state(bench.root / "foreign").as_uri()
        case "nonsense":
            uri = "file:///%00"
        case _:
            uri, checksum = "", sha256(b"").hexdigest()
    bench.prepare(
        *("/usr/bin/touch", str(bench.root / "started")),
        **keeping(bench),
        restore={"uri": uri, "sha256": checksum},
    )
    await bench.run()

    exited = await bench.server.wait_for("exited")

    assert (exited["error"], exited["exitCode"]) == ("CheckpointUnavailable", None)
    assert exited["message"]
    assert await bench.finished() == 0
    assert bench.exit_json()["error"] == "CheckpointUnavailable"
    assert bench.server.kinds() == ["registered", "exited"]
    assert not (bench.root / "started").exists()


async def test_a_stop_before_the_checkpoint_is_fetched_means_no_start(  # T17
    bench: Bench, saved: tuple[Path, str]
) -> None:
    path, checksum = saved

    def stop_first(report: Report) -> Reply:
        orders = [{"kind": "stop", "graceMs": 1000}] if report["kind"] == "registered" else []
        return 200, {"orders": orders, "granted": True, "lastSeq": 4}

    bench.server.policy = stop_first
    bench.prepare(
        *("/usr/bin/touch", str(bench.root / "started")),
        **keeping(bench),
        restore={"uri": path.as_uri(), "sha256": checksum},
    )
    await bench.run()

    exited = await bench.server.wait_for("exited")

    assert (exited["exitCode"], exited["error"]) == (None, None)
    assert await bench.finished() == 0
    assert not (bench.root / "started").exists()
