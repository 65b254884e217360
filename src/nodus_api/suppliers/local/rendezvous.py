"""Where the ranks of a gang meet on this host: one loopback port a gang epoch (SC-143).

The first rank that is made chooses it and writes it down, the others read it, so it is the same
for all, whichever scheduler process makes them. It lies outside the range from which the kernel
gives ports to outgoing connections, and was free when it was chosen.
"""

import socket
from hashlib import sha256
from typing import Any

from nodus_api.runner.files import read_json, write_json
from nodus_api.suppliers.local.workdir import WorkDirectories
from nodus_api.suppliers.supplier import GangSeat, NoCapacity

HOST = "127.0.0.1"
FIRST_PORT = 20_000
PORTS = 10_000

_RECORD = ".rendezvous"


def rendezvous(directories: WorkDirectories, key: str, seat: GangSeat) -> str:
    """Return `host:port` for the machine `key` of a gang; the caller holds the root's lock.

    A gang's port is kept for as long as one of its machines is there. Raises NoCapacity if no
    port is free.
    """
    path = directories.root / _RECORD
    machines = {*directories.machines(), key}
    kept = _living(read_json(path) or {}, machines)
    name = f"{seat.id}/{seat.epoch}"
    mine = kept.get(name) or {"port": _free_port(name, kept), "machines": []}
    keys = sorted({*mine["machines"], key} & machines)
    write_json(path, kept | {name: {"port": mine["port"], "machines": keys}}, durable=True)
    return f"{HOST}:{mine['port']}"


def _living(known: dict[str, Any], machines: set[str]) -> dict[str, Any]:
    return {name: one for name, one in known.items() if machines & set(one["machines"])}


def _free_port(name: str, kept: dict[str, Any]) -> int:
    """Return a port that no gang has and nothing listens on; the search begins at a hash."""
    taken = {one["port"] for one in kept.values()}
    start = int.from_bytes(sha256(name.encode()).digest()[:4])
    for step in range(PORTS):
        port = FIRST_PORT + (start + step) % PORTS
        if port not in taken and _can_listen(port):
            return port
    raise NoCapacity("no port is free on this host for a gang to meet at")


def _can_listen(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True
