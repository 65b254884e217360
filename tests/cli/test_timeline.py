"""`nodus timeline`: drawings of lives as short as a second and as long as days."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.cli.told_lives import a_plain_life, golden, lose_and_finish, moment, plain, timeline
from tests.history import rows
from tests.history.checking import assert_sound
from tests.scheduler.fake_supplier import FakeSupplier
from tests.scheduler.world import World

from nodus_api.cli.spans import Timeline, epoch_of, timeline_json, timeline_of
from nodus_api.cli.time_scale import TimeScale, length, rounded_up
from nodus_api.cli.timeline_text import Drawing, draw, text_of
from nodus_api.clock import ManualClock
from nodus_api.storage.engine import Database
from nodus_api.storage.lives import Life
from nodus_api.suppliers.supplier import NoCapacity

_LABEL = r"\d{4}-\d\d-\d\d|\d\d-\d\d \d\d:\d\d|\d\d:\d\d:\d\d|\d\d:\d\dZ"


@pytest.fixture
async def world(scheduler_database: Database, clock: ManualClock) -> AsyncIterator[World]:
    supplier = FakeSupplier(clock)
    yield World(scheduler_database, clock, supplier)
    assert_sound(rows.history_of(await rows.read(scheduler_database), supplier.machines))


def of(*lives: Life, now: str = "10:00:00", state: str = "Succeeded") -> Timeline:
    return timeline_of("job/train", "default", state, lives, moment(now))


def drawn(timeline: Timeline, width: int = 80) -> str:
    return text_of(draw(timeline, Drawing(width=width)))


def chart(timeline: Timeline, width: int = 60) -> list[str]:
    """Return the bars and the scale, from the first blank line to the second."""
    lines = drawn(timeline, width).splitlines()
    first = lines.index("") + 1
    return lines[first : lines.index("", first)]


def bars(timeline: Timeline, width: int = 60) -> list[str]:
    """Return the bars alone, a line each."""
    return [line for line in chart(timeline, width) if re.match(r".{0,8} e[0-9]+ ", line)]


@pytest.mark.parametrize("width", [80, 120])
async def test_a_lost_and_replaced_life_is_drawn(world: World, width: int) -> None:
    await lose_and_finish(world)

    assert plain(drawn(await timeline(world), width)) == golden(f"timeline_{width}")


async def test_json_has_the_facts_of_the_drawing(world: World) -> None:
    await lose_and_finish(world)
    facts = timeline_json(await timeline(world))

    assert {name: facts[name] for name in ("owner", "project", "state", "live")} == {
        "owner": "job/train",
        "project": "default",
        "state": "Succeeded",
        "live": False,
    }
    first, second = facts["epochs"]
    assert first["spans"] == [
        {
            "kind": "Boot",
            "startTime": "2026-01-01T00:00:00Z",
            "endTime": "2026-01-01T00:00:02Z",
            "seconds": 2,
        },
        {
            "kind": "Running",
            "startTime": "2026-01-01T00:00:02Z",
            "endTime": "2026-01-01T00:01:27Z",
            "seconds": 85,
        },
        {
            "kind": "Teardown",
            "startTime": "2026-01-01T00:01:27Z",
            "endTime": "2026-01-01T00:01:42Z",
            "seconds": 15,
        },
    ]
    assert first["covered"] == [
        {"startTime": "2026-01-01T00:01:27Z", "endTime": "2026-01-01T00:01:42Z"}
    ]
    assert first["checkpoints"] == ["2026-01-01T00:00:42Z", "2026-01-01T00:01:22Z"]
    assert (first["lostSeconds"], first["recoverySeconds"]) == (5, 17)
    assert (first["costUSD"], first["coveredUSD"]) == ("0.001450", "0.000250")
    assert first["supersededBy"] == second["attempt"]
    assert second["spans"][0]["kind"] == "Restore"  # SC-140


async def test_a_live_one_goes_on_up_to_now(world: World) -> None:
    await world.submit()
    await world.settle()
    await world.start()
    await world.settle(30)
    seen = await timeline(world)

    assert seen.live
    assert seen.end == world.clock.now()
    (bar,) = bars(seen)
    assert bar.endswith("=>")
    assert "to now, 2026-01-01T00:00:32Z" in drawn(seen)
    (running,) = [one for one in timeline_json(seen)["epochs"][0]["spans"] if "endTime" not in one]
    assert (running["kind"], running["seconds"]) == ("Running", 30)


def test_queue_time_is_thin_and_short_spans_show_among_days() -> None:
    seen = of(
        a_plain_life(
            "2026-03-01T00:00:00Z 2026-03-02T00:00:00Z 2026-03-02T00:00:01Z"
            " 2026-03-02T00:00:02Z 2026-03-04T23:59:59Z 2026-03-05T00:00:00Z"
        )
    )
    (bar,) = bars(seen, 47)

    assert bar == "0  e1  " + "." * 10 + "b" + "=" * 28 + "t"
    assert [epoch.seconds("Acquiring") for epoch in seen.epochs] == [1]
    assert "2 d" not in bar
    said = drawn(seen, 47)
    assert "03-02" in said
    assert "Queued 24h" in said.replace("\n", " ")


def test_bars_of_a_second_have_a_scale_in_seconds() -> None:
    seen = of(a_plain_life("10:00:00 10:00:00 10:00:00 10:00:01 10:00:02 10:00:03"))

    assert chart(seen, 37)[:3] == [
        "0  e1  bbbbbbbbbb==========tttttttttt",
        "       |---------|---------|--------|",
        "       10:00:00  10:00:01  10:00:02",
    ]


def test_ranks_are_lanes_with_their_gang_epochs_on_one_scale() -> None:
    lives = [
        a_plain_life(
            times,
            slot=str(slot),
            epoch=epoch,
            gang={"id": f"train/{epoch}", "epoch": epoch, "rank": slot, "size": 2},
        )
        for epoch, times in (
            (1, "10:00:00 10:00:00 10:00:00 10:00:10 10:00:20 10:00:25"),
            (2, "10:00:20 10:00:25 10:00:25 10:00:30 10:00:50 10:00:50"),
        )
        for slot in (1, 0)
    ]
    seen = of(*lives)

    assert bars(seen, 62) == [
        "rank 0  e1  bbbbbbbbbb==========ttttt",
        "        e2                      .....bbbbb====================",
        "rank 1  e1  bbbbbbbbbb==========ttttt",
        "        e2                      .....bbbbb====================",
    ]
    assert [one["gangEpoch"] for one in timeline_json(seen)["epochs"]] == [1, 2, 1, 2]
    assert "4 epochs in 2 lanes" in drawn(seen)


def test_lanes_go_by_number_and_then_by_name() -> None:
    lives = [a_plain_life("10:00:00 - - - 10:00:01", slot=slot) for slot in ("10", "9", "build")]

    assert [epoch.slot for epoch in of(*lives).epochs] == ["build", "9", "10"]


def test_what_had_no_machine_has_no_bar_of_teardown() -> None:  # SC-006, SC-502
    ended = a_plain_life("10:00:00 10:00:10 - - 10:00:20 10:00:30", stage="Failed", reason="Loop")

    assert [span.kind for span in of(ended).epochs[0].spans] == ["Queued", "Acquiring"]
    never = a_plain_life("10:00:00 - - - 10:00:00", stage="Failed", reason="Unplaceable")
    assert of(never).epochs[0].spans == ()
    assert "0.000000 USD" in drawn(of(never))


async def test_a_failed_try_leaves_it_queued(world: World) -> None:  # T6, SC-006
    world.fake.before = NoCapacity("none")
    await world.submit()
    await world.settle(10)
    (epoch,) = timeline_json(await timeline(world))["epochs"]

    assert "acquiredTime" in (await world.status())["timings"]
    assert [one["kind"] for one in epoch["spans"]] == ["Queued"]


def test_a_hundred_lanes_and_a_narrow_terminal_are_drawn() -> None:
    lives = [
        a_plain_life("10:00:00 10:00:01 10:00:01 10:00:02 10:00:09 10:00:10", slot=str(slot))
        for slot in range(100)
    ]
    said = drawn(of(*lives), 10)

    assert "99  e1  ..bb==============tt" in said
    assert drawn(of()) == "job/train in project default: Succeeded, no Attempt yet.\n"


def test_cover_is_marked_beneath_its_bar() -> None:  # SC-521
    seen = of(
        a_plain_life(
            "10:00:00 10:00:00 10:00:00 10:00:10 10:00:20 10:00:30",
            covered="10:00:20..10:00:30",
            stage="Lost",
            reason="NodeLost",
            exitCode=137,
            signal=9,
            interruption={"trigger": "HeartbeatLoss", "lostSeconds": 10},
        )
    )
    assert chart(seen, 37)[:2] == [
        "0  e1  bbbbbbbbbb==========tttttttttt",
        "                           ~~~~~~~~~~",
    ]
    said = " ".join(drawn(seen, 37).split())
    assert "0 e1 Lost NodeLost (HeartbeatLoss) signal 9, Boot 10 s" in said


def test_blocks_stand_in_the_same_cells() -> None:
    seen = of(
        a_plain_life("10:00:00 10:00:00 10:00:00 10:00:10 10:00:20 10:00:30", saved="10:00:15")
    )
    line = next(line for line in draw(seen, Drawing(width=37, blocks=True)) if len(line) > 1)

    assert line == [
        ("0  e1  ", ""),
        ("░" * 10, "Boot"),
        ("█" * 5, "Running"),
        ("┃", "Checkpoint"),
        ("█" * 4, "Running"),
        ("▓" * 10, "Teardown"),
    ]


@pytest.mark.parametrize(
    "seconds", [1, 2, 7, 59, 61, 600, 3599, 7200, 86399, 86401, 10**6, 10**7, 10**8]
)
@pytest.mark.parametrize("cells", [20, 73, 200])
def test_labels_of_a_scale_never_touch_and_stand_under_their_ticks(
    seconds: int, cells: int
) -> None:
    start = moment("10:00:03")
    scale = TimeScale(start=start, end=start + timedelta(seconds=seconds), cells=cells)
    ruler, words = scale.feet()

    assert len(ruler) == cells
    assert len(words) <= cells
    assert "|" in ruler
    for label in re.finditer(_LABEL, words):
        assert ruler[label.start()] == "|"


def test_lengths_are_told_in_the_unit_that_suits() -> None:
    assert [length(one) for one in (0.014, 1.7, 59, 130, 7200, 200000)] == [
        *("0.014 s", "1.7 s", "59 s", "2.17 min", "2 h", "2.31 d"),
    ]
    whole = moment("10:00:00")
    assert rounded_up(whole) == whole
    assert rounded_up(whole + timedelta(microseconds=1)) == moment("10:00:01")


def test_an_end_is_not_named_twice() -> None:
    life = a_plain_life(
        "10:00:00 10:00:01 10:00:02 10:00:03 10:00:09",
        stage="Stopped",
        reason="Stopped",
        interruption={"trigger": "User", "lostSeconds": 1},
    )
    assert epoch_of(life, moment("10:01:00")).outcome == "Stopped (User)"
