"""A failover that lost commits: what a sound server shows, and what each fault gives."""

from dataclasses import replace
from typing import Any

from tests.history.checking import findings
from tests.history.examples import ALL, LOG, ONE, a_list, a_stream, at, broken, event, scope
from tests.history.facts import Answer, Event, History, Row, Stream
from tests.history.test_ends import an_error
from tests.history.test_reads import EXACT, refused
from tests.history.truth import Truth

MARKER = 1 << 44
AFTER = (
    *LOG[:11],  # up to 11; 12, 13 and 14 were lost
    Row(rev=MARKER, kind="E", tx=50, at=at(50)),
    replace(LOG[13], rev=MARKER + 1, tx=51, at=at(51)),  # a2 is stopped after all
)
TRUTH = Truth(AFTER)
FROM_5 = f"{ALL}?watch=1&resourceVersion=5"


def a_history(*streams: Stream, answers: tuple[Answer, ...] = (), **more: Any) -> History:
    return replace(History(log=AFTER, streams=streams, answers=answers), **more)


def before(upto: int, **more: Any) -> Stream:
    """Return a watch of the old primary."""
    return a_stream(FROM_5, upto=upto, **more)


def test_what_was_lost() -> None:
    assert TRUTH.lost == [(11, MARKER)]
    assert TRUTH.loss_of(12) == (11, MARKER)
    assert [TRUTH.loss_of(rev) for rev in (11, MARKER)] == [None, None]


def test_a_sound_failover() -> None:  # H-19
    """One stream ends at the marker and meets 410; one that had not seen the loss goes on."""
    late = replace(
        a_stream(f"{ALL}?watch=1&resourceVersion=14", asked=120), events=(an_error(410),)
    )
    kept = a_stream(
        f"{ALL}?watch=1&resourceVersion=11", asked=120, client="bob", truth=TRUTH, upto=MARKER + 1
    )
    assert [one.rev for one in kept.events] == [MARKER + 1]
    assert findings(a_history(before(14), late, before(11, client="bob"), kept)) == []


def after_the_marker() -> Event:
    (found,) = TRUTH.projection(scope(ALL), MARKER, MARKER + 1)
    return event(found, second=130)


def test_a_stream_that_goes_on_over_its_loss() -> None:  # H-19
    said = f"14 was lost: 11 was kept, and then {MARKER} began"
    but = f"the stream goes on with MODIFIED a2 at {MARKER + 1}"
    open_one = before(14)
    crossed = replace(open_one, events=(*open_one.events, after_the_marker()))
    assert broken(a_history(crossed)) == [("H-19", said, but)]
    resumed = replace(
        a_stream(f"{ALL}?watch=1&resourceVersion=14", asked=120), events=(after_the_marker(),)
    )
    assert ("H-19", said, but) in broken(a_history(resumed))


def test_a_kept_position_that_is_refused() -> None:  # H-19, H-04: prev_last stands for the marker
    refused_one = replace(
        a_stream(f"{ALL}?watch=1&resourceVersion=11", asked=60), events=(an_error(410, 61),)
    )
    assert [rule for rule, *_ in broken(a_history(refused_one))] == ["H-04"]


def test_an_answer_of_a_lost_revision() -> None:  # H-19
    told = a_list(ONE, 14, asked=60)
    again = a_list(f"{ONE}?resourceVersion=14&{EXACT}", 14, asked=200)
    fresh = a_stream(
        f"{ALL}?watch=1&resourceVersion=11", asked=90, client="bob", truth=TRUTH, upto=MARKER + 1
    )
    assert findings(a_history(answers=(told,))) == []
    assert broken(a_history(fresh, answers=(told, again))) == [
        ("H-19", f"{MARKER} had begun, after 11", "the answer tells 14")
    ]


def test_a_number_that_is_used_again() -> None:  # H-19: plain counting would do this
    lost = before(12)
    other = replace(lost.events[-1], uid="uid-x", name="x")
    again = replace(before(11, client="bob", asked=120), events=(*before(11).events, other))
    assert ("H-19", f"12 is uid-b1: {lost}", "here it is uid-x") in broken(a_history(lost, again))


def test_an_epoch_that_never_was() -> None:  # H-19, LW-103
    target = f"{ALL}?resourceVersion={2 << 44}"
    assert findings(a_history(answers=(refused(target, 504, "ResourceVersionTooLarge"),))) == []
    assert ("H-19", "the newest epoch is 1", f"the answer to {2 << 44} is 410") in broken(
        a_history(answers=(refused(target, 410),))
    )
    exact = f"{target}&{EXACT}"
    assert findings(a_history(answers=(refused(exact, 410),))) == []
