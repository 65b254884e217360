"""A log of a few rows that spans many partitions: an epoch may begin at any revision of its own."""

from tests.storage.scene import Connection

from nodus_api.storage.upkeep import WIDTH

BEGIN = """
WITH was AS (SELECT f.*, (SELECT max(rev) FROM nodus.changes) AS head FROM nodus.feed f FOR UPDATE),
now AS (SELECT *, ((epoch + 1)::bigint << 44) + $1 AS first FROM was),
moved AS (UPDATE nodus.feed SET epoch = feed.epoch + 1 RETURNING 1),
told AS (INSERT INTO nodus.feed_epochs
  SELECT epoch + 1, first, head, timeline, sysid FROM now RETURNING first_rev)
SELECT first_rev FROM told
"""


async def begin_epoch(connection: Connection, *, room: int, partition: int = 1) -> int:
    """Begin an epoch `room` rows before the end of its n-th partition; returns its marker.

    As an operator's `start_epoch(true)` does it, which begins at the first revision of all.
    """
    async with connection.transaction():
        # the writers' lock first: the head must not move meanwhile
        await connection.execute("SELECT FROM nodus.feed FOR UPDATE")
        marker: int = await connection.fetchval(BEGIN, partition * WIDTH - room - 1)
        await connection.execute("SELECT nodus.ensure_partitions($1, 1)", marker)
        await connection.execute("INSERT INTO nodus.changes (rev, kind) VALUES ($1, 'E')", marker)
    return marker
