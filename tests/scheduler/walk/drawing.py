"""What a walk is drawn from: Jobs, losses, commands, answers, moments.

Where several walks in a row would come to nothing, the usual course stands more than once.
"""

from hypothesis import strategies as st
from tests.scheduler.walk.supplier import FAULTS

LOSSES = ("node-loss", "preemption", "whatever fits", "heartbeat", "readiness")
CALLS = ("create", "delete", "signal", "find", "observe", "inject", "notices", "wipe", "assign")
NAMES = ("one", "two", "three")
STEPS = (
    "drill turns", "intake", "stop", "limits", "drill", "notices", "funds", "fill", "offers",
    "place", "hedge", "warm", "request", "signal", "reports", "observe", "deadlines", "end",
    "replace", "release", "retire", "accrue", "sweep", "forget",
)  # fmt: skip
TIMES = (1, 0.4, 10, 35, 70, 130, 245, 700, 3600)

whichever = st.integers(0, 5)
rounds = st.sampled_from((1, 0, 2))
"""How often all goes its way after a step: what a step began should take effect in most walks."""
laggards = st.sampled_from((None, None, 0, 1))
"""Which runner says nothing while all goes its way."""
verbs = st.sampled_from(
    ("suspend", "resume", "resume", "stop", "delete", "scale", "scale", "submit")
)
hows = st.sampled_from(("heard", "heard", "unanswered", "late"))
codes = st.sampled_from((0, 0, 1, 3, 137, 139))
faults = st.sampled_from([(call, fault) for call in FAULTS for fault in FAULTS[call]])
notices = st.sampled_from((30, 0, 120))
deposits = st.sampled_from(("0.03", None, "0.06", "0.021", None))
"""USD: a start takes 0.02 of them at the rate of the fleet, or 0.03."""
quotas = st.sampled_from((None, None, 2, 1))
"""Of machines without accelerators, as all of the fleet are."""
schedules = st.sampled_from((None, None, None, "node-loss", "preemption"))
limits = st.fixed_dictionaries(
    {},
    optional={
        "maxCostUSD": st.sampled_from(("0.5", "0.2", "0.05", "0.002")),
        "maxDurationSeconds": st.sampled_from((60, 600)),
        "startDeadlineSeconds": st.sampled_from((60, 600)),
        "fundingWaitSeconds": st.sampled_from((60, 600)),
    },
)
idles = st.sampled_from((60, 400, 0))
common = {
    "restart": st.fixed_dictionaries({"maxRetries": st.integers(0, 2)}),
    "checkpoint": st.fixed_dictionaries({"restartable": st.booleans()}),
    "stopGraceSeconds": st.sampled_from((30, 0, 300)),
    "autoResume": st.booleans(),
}
singles = st.fixed_dictionaries(
    common
    | {
        "completions": st.integers(1, 3),
        "limits": st.one_of(st.just({}), limits),
        "placement": st.sampled_from(({"hedge": "Always"}, {})),
    },
    optional={"parallelism": st.just(1), "idleSeconds": idles},
)
raced = st.fixed_dictionaries(
    common
    | {
        "completions": st.integers(1, 2),
        "limits": st.one_of(st.just({}), st.just({}), limits),
        "placement": st.just({"hedge": "Always"}),
    },
)
gangs = st.fixed_dictionaries(
    common
    | {
        "completions": st.sampled_from((2, 3)),
        "gang": st.just(True),
        "limits": st.one_of(st.just({}), limits),
    }
)
specs = st.one_of(gangs, singles)
