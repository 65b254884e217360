"""`status.actual` as the sum of the ledger (SC-501, SC-506, SC-521, SC-523)."""

from collections.abc import Iterable
from decimal import Decimal

from nodus_api.attempts.decimals import hours, usd
from nodus_api.attempts.types import AttemptActual, CostSegments
from nodus_api.kernel.attempt import CostSegment
from nodus_api.kernel.vocabulary import Segment


def actual(ledger: Iterable[CostSegment]) -> AttemptActual:
    """Return what is charged: USD by segment, hours of charged time, and what Nodus covered."""
    charged = dict.fromkeys(Segment, Decimal(0))
    seconds = 0
    covered = set()
    for row in ledger:
        if row.covered:
            covered.add(row.segment)
        else:
            charged[row.segment] += row.usd
            seconds += row.seconds
    return AttemptActual(
        cost_usd=usd(sum(charged.values(), Decimal(0))),
        hours=hours(Decimal(seconds) / 3600),
        segments=CostSegments(
            boot_usd=usd(charged[Segment.BOOT]),
            covered_by_nodus=tuple(part.value for part in Segment if part in covered) or None,
            restore_usd=usd(charged[Segment.RESTORE]),
            running_usd=usd(charged[Segment.RUNNING]),
            teardown_usd=usd(charged[Segment.TEARDOWN]),
        ),
    )
