"""The loop: places Attempts, drives machines, and writes what readers see.

Decision 1. **Level-triggered, one fenced batch at a time.** Every pass derives its work from rows
alone; a decision takes a record and returns another; one place draws the consequences, writes what
differs and publishes it. A crash between any two statements loses nothing but time, and a second
loop that still runs is refused by the token. It costs a short read of due rows per step and pass.

Decision 2. **The database's time is read with the fence.** Each writing transaction asks for the
token and the time in one statement, so that a supplier's answer is never compared with a moment
before it (P-10), at no cost. (One reading a pass would be older than what the pass has learnt.)

Decision 3. **What a transaction teaches is written in it.** Offers are judged by facts that are
read off what the decisions of a batch changed, in one place, whichever step made them (`learning`,
`calibrating`); so nothing is learnt twice or lost in a crash. It costs a read and a write of a few
rows in each batch that learns something.
"""

from nodus_api.scheduler.context import Pace, Retention
from nodus_api.scheduler.loop import Passes, Scheduler
from nodus_api.scheduler.metrics import LoopMetrics

__all__ = ["LoopMetrics", "Pace", "Passes", "Retention", "Scheduler"]
