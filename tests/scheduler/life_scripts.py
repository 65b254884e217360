"""The lives that are told with a fault at each site: what users, programs and machines do when.

All together they pass through what a life on one machine can: loss and retry, doubt about a
create, stop, suspension and deletion, a gang that is split and restarted, drills, and a supplier
that shows its machines late.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from nodus_api.suppliers.supplier import SupplierCaps


@dataclass(frozen=True, kw_only=True)
class Life:
    """`words`: what each Attempt's runner says, one word a moment from its machine's first on.

    Under `SLOT/EPOCH second` that of its second machine; `offers` classes are offered.

    `orders`: what users do at a moment, each a verb, and for a drill the Attempt, the loss and the
    seconds of its notice. `offsets`: seconds after a moment at which the passes run; `looks`: the
    same for single moments. `doubts`: how the supplier answers the first create of an Attempt.
    """

    name: str
    spec: Mapping[str, Any]
    words: Mapping[str, Sequence[str]]
    orders: Mapping[int, Sequence[str]] = field(default_factory=dict)
    offsets: Sequence[float] = (0, 15)
    looks: Mapping[int, Sequence[float]] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)
    offers: int = 1
    caps: SupplierCaps = field(default_factory=lambda: SupplierCaps(sync_delete=True))
    boots: int = 0
    """The moment from which on machines run; before, they are only being made."""
    replayed: bool = False
    """Whether the life is told with each report sent twice, too."""
    moments: int


_BOOT = ("registered", "asks", "starts")

LOSS = Life(  # a machine is lost and replaced from its checkpoint, a program fails and is retried
    name="loss",
    spec={
        "completions": 2,
        "parallelism": 2,
        "restart": {"maxRetries": 1},
        "checkpoint": {"restartable": True},
    },
    words={
        "0/1": (*_BOOT, "saves 1", "dies"),
        "0/2": (*_BOOT, "exits 0"),
        "1/1": (*_BOOT, "exits 3"),
        "1/2": (*_BOOT, "exits 0"),
    },
    replayed=True,
    moments=11,
)
DOUBT = Life(  # a create that took effect unheard, one that did not, and one refused; slow proofs
    name="doubt",
    spec={"completions": 3, "parallelism": 3},
    words=dict.fromkeys(("0/1", "1/1", "2/1"), (*_BOOT, "exits 0")),
    doubts={"0/1": "after", "1/1": "before", "2/1": "none"},
    offsets=(0, 3, 35, 45),
    caps=SupplierCaps(sync_delete=False),
    moments=6,
)
STOPS = Life(  # suspended, resumed, stopped, deleted; then the archive is what is compared
    name="stops",
    spec={"stopGraceSeconds": 200},
    words={"0/1": (*_BOOT, "beat", "stopped"), "0/2": (*_BOOT, "beat", "stopped")},
    orders={4: ("suspend",), 6: ("resume",), 10: ("stop",), 12: ("delete",)},
    moments=13,
)
EARLY = Life(  # stopped while a machine is being made
    name="early",
    spec={"completions": 2, "parallelism": 2},
    words={},
    orders={1: ("stop",)},
    doubts={"1/1": "after"},
    offsets=(0, 3),
    boots=2,
    moments=4,
)
GANG = Life(  # a rank is lost, and all go on from what they saved together
    name="gang",
    spec={
        "completions": 2,
        "gang": True,
        "stopGraceSeconds": 200,
        "checkpoint": {"restartable": True},
    },
    words={
        "0/1": (*_BOOT, "saves 1", "beat", "stopped"),
        "1/1": (*_BOOT, "saves 1", "dies"),
        "0/2": (*_BOOT, "exits 0"),
        "1/2": (*_BOOT, "exits 0"),
    },
    replayed=True,
    moments=11,
)
DRILL = Life(  # one machine is reclaimed on purpose after a notice, another one is lost
    name="drill",
    spec={"completions": 2, "parallelism": 2, "stopGraceSeconds": 200},
    words={
        "0/1": (*_BOOT, "beat", "stopped"),
        "1/1": (*_BOOT, "beat", "dies node-loss"),
        "0/2": (*_BOOT, "exits 0"),
        "1/2": (*_BOOT, "exits 0"),
    },
    orders={4: ("drill 0/1 preemption 120", "drill 1/1 node-loss")},
    caps=SupplierCaps(sync_delete=True, inject=True, notices=True),
    moments=10,
)
HIDDEN = Life(  # machines are found and listed only some seconds after they were made
    name="hidden",
    spec={"completions": 3, "parallelism": 3},
    words=dict.fromkeys(("0/1", "1/1", "2/1"), (*_BOOT, "exits 0")),
    doubts={"0/1": "after", "1/1": "before"},
    caps=SupplierCaps(sync_delete=True, visibility_delay=timedelta(seconds=5)),
    looks={0: (0, 3, 45)},
    moments=5,
)
RACE = Life(  # a machine that never gets ready is raced, and beaten, by a second one
    name="race",
    spec={"placement": {"hedge": "Always"}, "restart": {"maxRetries": 1}},
    words={
        "0/1": ("beat",),
        "0/1 second": (*_BOOT, "exits 3"),
        "0/2": (*_BOOT, "exits 0"),
    },
    offers=2,
    moments=13,
)
LIVES = (LOSS, DOUBT, STOPS, EARLY, GANG, DRILL, HIDDEN, RACE)
