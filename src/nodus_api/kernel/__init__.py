"""The pure core: what an Attempt is, how it moves, where it goes and what it costs.

Decision 1: values in, values out. Nothing here reads a clock, logs, or knows a
   database, a supplier or the wire; the loop passes the moment and writes the answer.
   It costs the loop some carrying, and buys that every rule is tested in microseconds
   and that a decision can be replayed.
Decision 2: milestones are whole seconds, and the bill is made from them (SC-005), so
   that anybody can recompute it from the object alone. It costs a boot of under a
   second its length: it shows as 0 s and has no ledger row.
Decision 3: money is `Decimal` in micro-dollars, cumulative from the start of each
   machine's clock, half up (SC-505). Segments always add up to the rounded whole, and
   PostgreSQL's `round(numeric)` agrees.
Decision 4: placement asks bitmap indexes (SC-370). Each bucket of the catalog keeps, for what
   filters ask, the set of its candidates as bits of an integer, so that a filter is one operation
   for all of them, in plain Python and without NumPy. It costs a second writing of the filters
   (`bench.plain_placement`), without which nothing would hold the first.
"""

from nodus_api.kernel.attempt import Attempt, AttemptView
from nodus_api.kernel.billing import Actual, Charge, Cover, MachineClock, actual, charge
from nodus_api.kernel.errors import IllegalTransition
from nodus_api.kernel.lifecycle import advance, queue
from nodus_api.kernel.moments import clamped
from nodus_api.kernel.naming import attempt_name
from nodus_api.kernel.placement import place
from nodus_api.kernel.replacement import Replacement, decide

__all__ = [
    "Actual",
    "Attempt",
    "AttemptView",
    "Charge",
    "Cover",
    "IllegalTransition",
    "MachineClock",
    "Replacement",
    "actual",
    "advance",
    "attempt_name",
    "charge",
    "clamped",
    "decide",
    "place",
    "queue",
]
