"""What a fleet knows to be true, against what it must never be (SC-733, P-05, P-09)."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from nodus_api.suppliers.simulated.fleet import Fleet


def alive(fleet: Fleet) -> list[str]:
    """Return the keys of machines of which something is left (P-09)."""
    return sorted(one.key for one in fleet.present())


def started_twice(fleet: Fleet) -> list[str]:
    """Return the Attempts whose program was started more than once (P-05)."""
    starts = Counter((one.attempt, one.epoch) for one in fleet.runs)
    return sorted(f"{attempt} at {epoch}" for (attempt, epoch), n in starts.items() if n > 1)


def machine_time(fleet: Fleet, now: datetime) -> Iterator[tuple[str, timedelta]]:
    """Yield each machine's key and how long it was billed by its supplier, so far."""
    for machine in fleet.machines.values():
        if machine.granted is not None:
            end = min(machine.gone or now, now)
            yield machine.intent.key, max(end - machine.granted, timedelta(0))


def misspoken(fleet: Fleet) -> list[str]:
    """Return what the desk would not read of honest runners' reports."""
    return [
        f"{machine.name}: {answer.status} {answer.body.get('message', '')}"
        for machine in fleet.machines.values()
        for runner in machine.runners
        for answer in runner.refused
    ]
