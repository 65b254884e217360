"""The final report: how the program ended, as it is sent and as `exit.json` keeps it (SC-644)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodus_api.runner.files import EXIT, write_json
from nodus_api.runner.intent import RunnerIntent
from nodus_api.runner.times import age_ms, wall

START_FAILED = "StartFailed"
CHECKPOINT_UNAVAILABLE = "CheckpointUnavailable"
INTERNAL_ERROR = "InternalError"
_MESSAGE_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a program ended; moments are of `times.elapsed`.

    `signal` is set, with `exit_code` 128 + signal, if a signal killed it (SC-009). Both are None
    if it never started: then `error` says why not, or it was stopped before. `stopped_at` is the
    moment of the stop signal, None if it ended by itself (SC-013). `restored_bytes` is what a
    program that went on from a checkpoint read of it.
    """

    ended_at: float
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    started_at: float | None = None
    stopped_at: float | None = None
    restored_bytes: int | None = None
    error: str | None = None
    message: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the fields that do not change with time; `message` is at most 1 KiB."""
        message = self.message.encode()[:_MESSAGE_BYTES].decode(errors="ignore")
        return {
            "exitCode": self.exit_code,
            "signal": self.signal,
            "oom": self.oom,
            "restoreBytes": self.restored_bytes,
            "error": self.error,
            "message": message,
        }

    def moments(self) -> dict[str, float]:
        """Return the moments that are told as ages, without those that did not come."""
        named = {"startAgeMs": self.started_at, "stopAgeMs": self.stopped_at}
        return {name: moment for name, moment in named.items() if moment is not None}


def write_ending(directory: Path, intent: RunnerIntent, ending: Ending) -> None:
    """Write `exit.json`; its ages count back from its `at`, the wall time of writing."""
    record: dict[str, Any] = {
        "attempt": intent.attempt,
        "epoch": intent.epoch,
        "machine": intent.machine,
        "at": wall().isoformat(),
        **ending.fields(),
        "exitAgeMs": age_ms(ending.ended_at),
        **{name: age_ms(moment) for name, moment in ending.moments().items()},
    }
    write_json(directory / EXIT, record, durable=True)
