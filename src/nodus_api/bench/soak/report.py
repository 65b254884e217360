"""What a soak found: whether anything was lost, and whether memory stays where it is."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from nodus_api.bench.soak.processes import Replica

FLAT = 0.05
"""How far a sample of the last third may lie from their median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One replica's memory, in MB, of the process that ran last."""

    port: int
    first: float
    last: float
    most: float
    last_third: float | None
    """The median of the last third of the soak; None if it has too few samples."""
    spread: float | None
    """How far the farthest sample of the last third lies from that, as a share."""
    judged: bool
    """Whether it ran long enough before: history fills up for as long as it is kept."""

    @property
    def flat(self) -> bool:
        """Whether it may be called flat, or is not judged."""
        return not self.judged or (self.spread is not None and self.spread <= FLAT)


@dataclass(slots=True, kw_only=True)
class SoakReport:
    """The whole result."""

    minutes: float
    rate_asked: float
    rate: float = 0.0
    changes: int = 0
    watchers: int = 0
    events: int = 0
    streams: int = 0
    cuts: int = 0
    relists: int = 0
    """Watchers whose version had left the window, so that they listed again."""
    longest_away_seconds: float = 0.0
    faults: list[dict[str, Any]] = field(default_factory=list)
    partitions_dropped: int = 0
    oldest: int = 1
    memory: list[Memory] = field(default_factory=list)
    breaches: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether every history is the log's, and memory is flat where it is judged."""
        return not self.breaches and all(one.flat for one in self.memory)

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {"held": self.held, **asdict(self)}


def memory_of(replica: Replica, *, total: float, settled: float) -> Memory:
    """Judge a replica's samples; `settled` is how long history grows, `total` the soak, seconds."""
    values = [value for _, value in replica.samples] or [0.0]
    began = replica.samples[0][0] if replica.samples else total
    third = [value for at, value in replica.samples if at >= total * 2 / 3]
    middle = statistics.median(third) if len(third) > 2 else None
    return Memory(
        port=replica.port,
        first=values[0],
        last=values[-1],
        most=max(values),
        last_third=middle,
        spread=None if middle is None else _spread(third, middle),
        judged=began + settled <= total * 2 / 3,
    )


def _spread(values: Sequence[float], middle: float) -> float:
    return max(abs(value - middle) for value in values) / middle
