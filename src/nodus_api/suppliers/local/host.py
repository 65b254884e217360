"""What this host offers: its size in slots, and the environment programs start from (SC-710)."""

import os
import platform
import shutil
import sysconfig
from collections.abc import Mapping
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path

from nodus_api.suppliers.supplier import OfferedClass, SupplierOffer

# Names that a search for leaks finds only if they did leak (SC-203): not "local", not "host".
INSTANCE_TYPE = "host-slot"
REGION = "this-host"

_GIB = 1024**3
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PASSED_ON = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
)


def default_slots() -> int:
    """Return how many machines this host holds if nobody says: max(4, CPUs)."""
    return max(4, os.cpu_count() or 1)


def slot_offer(root: Path, *, slots: int, rate: Decimal, available: int) -> SupplierOffer:
    """Return the one offer: a slot of class `cpu-1c-{memGiB}g-other`.

    A slot has the host's memory and disk divided by the slots, in whole GiB, at least 1. `rate` is
    USD per hour.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    memory_gib = _share(memory, slots)
    offered = OfferedClass(
        name=f"cpu-1c-{memory_gib}g-other",
        accelerator=None,
        form=None,
        count=0,
        accelerator_memory_gib=None,
        vcpus=Decimal(1),
        memory_gib=memory_gib,
        disk_gib=_share(shutil.disk_usage(root).total, slots),
        arch=_ARCHITECTURES.get(platform.machine(), platform.machine()),
        region_class="other",
        gang_capable=True,
        rate_on_demand=rate,
        rate_spot=None,
        speed=Decimal(1),
        reference_rate=rate,
    )
    return SupplierOffer(
        offered_class=offered,
        instance_type=INSTANCE_TYPE,
        region=REGION,
        cost_on_demand=Decimal(0),
        available=available,
    )


def base_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return what programs get of the scheduler's environment: where things are, and no secret.

    The PATH ends with the folder of this installation's commands, so that `nodus checkpoint` is
    found whatever the scheduler was started with (SC-642); last, for a program's own `python` is
    the one that it had before.
    """
    passed_on = {name: own[name] for name in _PASSED_ON if name in own}
    return passed_on | {"PATH": _with_our_commands(own.get("PATH") or os.defpath)}


def _with_our_commands(path: str) -> str:
    commands = sysconfig.get_path("scripts")
    known = path.split(os.pathsep)
    return path if commands in known else os.pathsep.join((*known, commands))


def _share(size: int, slots: int) -> Decimal:
    whole = (Decimal(size) / _GIB / slots).to_integral_value(ROUND_FLOOR)
    return max(Decimal(1), whole)
