"""The walks of an installation that has little money: SC-620 to SC-623, P-15.

What loses machines is left out, so that most of a walk is spent on what this is about.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from tests.scheduler.walk.drawing import common
from tests.scheduler.walk.machine import SchedulerWalk

deposits = st.sampled_from(("0.021", "0.03", "0.045", "0.1"))
"""USD. A start holds 0.02 of them or 0.03; a minute costs 0.001 or 0.0015."""
specs = st.fixed_dictionaries(
    common
    | {
        "completions": st.sampled_from((1, 2)),
        "gang": st.booleans(),
        "autoResume": st.sampled_from((True, True, False)),
        "stopGraceSeconds": st.sampled_from((0, 30)),
        "limits": st.fixed_dictionaries(
            {},
            optional={
                "fundingWaitSeconds": st.sampled_from((60, 600)),
                "maxCostUSD": st.sampled_from(("0.015", "0.05")),
            },
        ),
    }
)
LEFT_OUT = (
    "drill", "drill_a_rank", "machine_fails", "reclaim_is_announced", "checkpoint",
    "programs_save", "stale_report", "report_comes_twice", "late_report_arrives",
    "old_leader_goes_on",
)  # fmt: skip


class FundsWalk(SchedulerWalk):
    """One organization whose money runs out, and comes back now and then."""

    @initialize(spec=specs, deposit=deposits, slots=st.sampled_from((4, 2)))
    def begins(self, spec: dict[str, Any], deposit: str, slots: int) -> None:
        super().begins(
            slots=slots,
            notices=False,
            sync=True,
            delay=0,
            warm=True,
            schedule=None,
            spec=spec | ({"completions": 2} if spec["gang"] else {}),
            going=4,
            lags=None,
            deposit=deposit,
            quota=None,
        )
        self.money_is_spent(turns=4)

    @rule(turns=st.sampled_from((6, 12)))
    def more_is_spent(self, turns: int) -> None:
        self.money_is_spent(turns=turns)


for _name in LEFT_OUT:
    setattr(FundsWalk, _name, None)
