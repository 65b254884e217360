"""P-15, written out again in SQL: what an organization's money must add up to at any moment."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

_SUMS = sa.text("""
SELECT f.organization, f.balance, f.held, f.captured,
  (SELECT coalesce(sum(s.usd), 0) FROM nodus.cost_segments s
   JOIN nodus.attempts a ON a.no = s.attempt JOIN nodus.projects p ON p.name = a.project
   WHERE p.organization = f.organization AND NOT s.covered)
  + (SELECT coalesce(sum(w.archived_usd), 0) FROM nodus.workloads w
     JOIN nodus.projects p ON p.name = w.project
     WHERE p.organization = f.organization) AS charged,
  (SELECT coalesce(sum(h.amount - h.captured), 0) FROM nodus.holds h
   WHERE h.organization = f.organization AND h.released IS NULL) AS holds,
  (SELECT coalesce(sum(e.amount), 0) FROM nodus.fund_entries e
   WHERE e.organization = f.organization) AS paid_in
FROM nodus.funds f
""")
_OUTLIVING = sa.text("""
SELECT a.name FROM nodus.holds h JOIN nodus.attempts a ON a.no = h.attempt
WHERE h.released IS NULL AND a.deletion_proven IS NOT NULL
""")


async def broken_books(connection: AsyncConnection) -> list[str]:
    """Return what is wrong with the money of any organization."""
    findings = []
    for one in await connection.execute(_SUMS):
        if one.captured != one.charged:
            findings.append(f"P-15: {one.captured} USD are captured, {one.charged} were charged")
        if one.held != one.holds:
            findings.append(f"P-15: {one.held} USD are held, the holds come to {one.holds}")
        if one.balance is not None and one.balance + one.held + one.captured != one.paid_in:
            findings.append(f"P-15: {one.paid_in} USD were paid in, which is not {one}")
    findings += [
        f"P-15: the hold of {name} outlives it"
        for name in (await connection.execute(_OUTLIVING)).scalars()
    ]
    return findings
