"""How much CPU a measured scheduler has used: its own, and that of the server's sessions.

Other load on the machine bends the time that passes, not this.
"""

from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import sqlalchemy as sa

from nodus_api.storage.engine import Database

_SESSIONS = sa.text("SELECT pid FROM pg_stat_activity")


@dataclass(frozen=True, slots=True)
class Used:
    """Seconds of CPU: of this process, and of each of the server's by its process id."""

    here: float
    server: dict[int, float]

    @classmethod
    async def now(cls, database: Database) -> "Used":
        """Read both; the server must run on this machine."""
        async with database.single_reads() as connection:
            pids = list((await connection.execute(_SESSIONS)).scalars())
        own = getrusage(RUSAGE_SELF)
        return cls(own.ru_utime + own.ru_stime, {pid: _seconds(pid) for pid in pids})

    def since(self, before: "Used") -> tuple[float, float]:
        """Return the seconds since an earlier reading: here, and on the server.

        Of a session that ended meanwhile nothing is counted.
        """
        server = sum(used - before.server.get(pid, 0.0) for pid, used in self.server.items())
        return self.here - before.here, server


def _seconds(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:  # it has just ended
        return 0.0
