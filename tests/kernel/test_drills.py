"""Which loss is a drill's, for how long, and of whom one may be asked (SC-012, SC-630)."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest
from tests.kernel.lives import acquiring, after, at, drained, pending, running, starting, succeeded

from nodus_api.kernel.attempt import Attempt
from nodus_api.kernel.drills import Drill, Loss, drawn, next_drill, put_down, refusal, stages_of
from nodus_api.kernel.events import CapacityLost, Heartbeat
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.vocabulary import Reason, Stage, Trigger

NODE_LOSS = Drill(loss=Loss.NODE_LOSS, since=at(200))
EVIDENCE = CapacityLost(at=at(300), trigger=Trigger.PROVIDER_EVIDENCE, reason=Reason.NODE_LOST)


@pytest.mark.parametrize(
    ("loss", "notice", "seconds"),
    [
        (Loss.NODE_LOSS, None, 120),
        (Loss.READINESS, None, 120),
        (Loss.PREEMPTION, 30, 150),
        (Loss.PREEMPTION, 0, 120),
        (Loss.HEARTBEAT, None, 120),
    ],
)
def test_a_drill_is_void_120_seconds_after_its_notice(
    loss: Loss, notice: int | None, seconds: int
) -> None:
    told = None if notice is None else timedelta(seconds=notice)
    drill = Drill(loss=loss, since=at(200), notice=told)
    attempt = starting() if loss is Loss.READINESS else running()
    assert drill.void_at == at(200 + seconds)
    assert drill.in_force(attempt, at(199 + seconds))
    assert not drill.in_force(attempt, at(200 + seconds))


def test_a_silence_is_the_drills_for_as_long_as_it_lasts() -> None:  # SC-614
    drill = Drill(loss=Loss.HEARTBEAT, since=at(200), made=True)
    late = after(running(), Heartbeat(at=at(319)))
    assert drill.in_force(late, at(2000))
    assert not drill.in_force(after(late, Heartbeat(at=at(320))), at(330))  # it speaks
    node_loss = Drill(loss=Loss.NODE_LOSS, since=at(200), made=True)
    assert not node_loss.in_force(late, at(320))


@pytest.mark.parametrize(
    ("drill", "text"),
    [
        (NODE_LOSS, "node-loss//"),
        (Drill(loss=Loss.HEARTBEAT, since=at(200), made=True), "heartbeat//made"),
        (
            Drill(loss=Loss.PREEMPTION, since=at(200), notice=timedelta(seconds=30), made=True),
            "preemption/30/made",
        ),
        (Drill(loss=Loss.PREEMPTION, since=at(200), notice=timedelta(0)), "preemption/0/"),
    ],
)
def test_a_drill_is_read_back_as_it_was_stored(drill: Drill, text: str) -> None:
    assert drill.to_text() == text
    assert Drill.of_text(text, at(200)) == drill


@pytest.mark.parametrize("text", ["flood//", "node-loss", "preemption/soon/"])
def test_a_text_that_is_no_drill_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"flood|unpack|soon"):
        Drill.of_text(text, at(0))


ALLOWED: list[tuple[Loss, Callable[[], Attempt], bool]] = [
    (Loss.PREEMPTION, starting, True),
    (Loss.PREEMPTION, running, True),
    (Loss.NODE_LOSS, starting, True),
    (Loss.NODE_LOSS, running, True),
    (Loss.HEARTBEAT, starting, False),
    (Loss.HEARTBEAT, running, True),
    (Loss.READINESS, starting, True),
    (Loss.READINESS, running, False),
    (Loss.NODE_LOSS, pending, False),
    (Loss.NODE_LOSS, acquiring, False),
    (Loss.NODE_LOSS, succeeded, False),
]


@pytest.mark.parametrize(("loss", "state", "allowed"), ALLOWED)
def test_each_loss_strikes_in_its_stages(
    loss: Loss, state: Callable[[], Attempt], allowed: bool
) -> None:  # SC-012
    assert (refusal(state(), loss) is None) is allowed


@pytest.mark.parametrize(
    ("attempt", "loss", "said"),
    [
        (pending(), Loss.NODE_LOSS, "it is Pending: a node-loss drill is for one that is Starting"),
        (starting(), Loss.HEARTBEAT, "it is Starting: a heartbeat drill is for one that is Run"),
        (running(), Loss.READINESS, "readiness is checked before that"),
        (succeeded(), Loss.READINESS, "it has ended (Succeeded): drill an Attempt that is Start"),
        (drained(running()), Loss.NODE_LOSS, "it is being stopped already"),
    ],
)
def test_a_refusal_says_why_and_what_to_do(attempt: Attempt, loss: Loss, said: str) -> None:
    assert said in (refusal(attempt, loss) or "")


@pytest.mark.parametrize(
    ("loss", "state", "reason"),
    [
        (Loss.PREEMPTION, starting, Reason.PREEMPTED),
        (Loss.PREEMPTION, running, Reason.PREEMPTED),
        (Loss.NODE_LOSS, starting, Reason.NODE_LOST),
        (Loss.NODE_LOSS, running, Reason.NODE_LOST),
        (Loss.HEARTBEAT, running, Reason.NODE_LOST),
        (Loss.READINESS, starting, Reason.READINESS_FAILED),
    ],
)
def test_a_loss_in_force_is_the_drills_with_the_simulated_reason(
    loss: Loss, state: Callable[[], Attempt], reason: Reason
) -> None:  # SC-012
    lost = put_down(EVIDENCE, state(), Drill(loss=loss, since=at(200)), at(300))
    assert (lost.trigger, lost.reason) == (Trigger.DRILL, reason)
    ended = advance(state(), lost)
    assert ended.reason is reason
    assert ended.interruption is not None
    assert ended.interruption.trigger is Trigger.DRILL


def test_a_loss_without_a_drill_in_force_stays_what_it_is() -> None:
    assert put_down(EVIDENCE, running(), None, at(300)) == EVIDENCE
    assert put_down(EVIDENCE, running(), NODE_LOSS, at(320)) == EVIDENCE
    readiness = Drill(loss=Loss.READINESS, since=at(200))  # the program has started since
    assert put_down(EVIDENCE, running(), readiness, at(201)) == EVIDENCE


@pytest.mark.parametrize(("beats", "finished"), [((), 100), ((150,), 150)])
def test_a_drilled_silence_ends_at_the_last_heartbeat(
    beats: tuple[int, ...], finished: int
) -> None:  # SC-015
    attempt = after(running(), *(Heartbeat(at=at(beat)) for beat in beats))
    silence = CapacityLost(at=at(700), trigger=Trigger.HEARTBEAT_LOSS, reason=Reason.NODE_LOST)
    drill = Drill(loss=Loss.HEARTBEAT, since=at(200), made=True)
    assert put_down(silence, attempt, drill, at(700)).at == at(finished)


def test_the_same_seed_draws_the_same_turns_and_another_seed_others() -> None:  # SC-630
    def turns(seed: int) -> list[float]:
        found, now = [], at(0)
        for _ in range(200):
            now = next_drill(seed, now, Decimal(6))
            found.append((now - at(0)).total_seconds())
        return found

    assert turns(7) == turns(7)
    assert turns(7) != turns(8)
    assert turns(7) == sorted(set(turns(7)))
    assert 500 < turns(7)[-1] / 200 < 700  # 6 an hour: 600 s on average


def test_turns_are_a_second_to_a_year_apart() -> None:
    assert next_drill(1, at(0), Decimal("99999.9999")) >= at(1)
    assert next_drill(1, at(0), Decimal("0.0001")) <= at(366 * 86_400)


def test_a_turn_draws_one_of_the_attempts_in_any_order() -> None:
    names = [f"train-{slot}-e1-k7f3q" for slot in range(20)]
    assert drawn(7, at(0), names) == drawn(7, at(0), reversed(names))
    assert len({drawn(7, at(second), names) for second in range(50)}) > 5
    assert drawn(7, at(0), []) is None
    assert stages_of(Loss.READINESS) == (Stage.STARTING,)
