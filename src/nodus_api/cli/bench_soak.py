"""A soak's report for people."""

from nodus_api.bench.soak.report import Memory, SoakReport
from nodus_api.cli.tabular import render_table

_MEMORY = ("FIRST MB", "LAST MB", "MOST MB", "LAST THIRD MB", "SPREAD")
_MOST_SHOWN = 20


def soak_text(report: SoakReport) -> str:
    """Return what was done, the faults, the memory and the verdict."""
    rows = [
        ("changes", f"{report.changes} ({report.rate}/s of {report.rate_asked:g}/s asked)"),
        (
            "watchers",
            f"{report.watchers} on {report.streams} streams, {report.cuts} cut off,"
            f" {report.relists} lists anew",
        ),
        ("events", str(report.events)),
        ("longest time without a stream", f"{report.longest_away_seconds} s"),
        ("oldest revision in the log", f"{report.oldest}, {report.partitions_dropped} dropped"),
        *((one["what"], f"normal after {one['backAfterSeconds']} s") for one in report.faults),
    ]
    memory = [_cells(one) for one in report.memory]
    parts = [
        render_table(("WHAT", "RESULT"), rows),
        render_table(("REPLICA", *_MEMORY, "FLAT"), memory, right=_MEMORY),
        "".join(f"{one}\n" for one in report.breaches[:_MOST_SHOWN]),
        f"{len(report.breaches)} breaches: {'it held' if report.held else 'it did not hold'}.\n",
    ]
    return "\n".join(part for part in parts if part)


def _cells(one: Memory) -> tuple[str, ...]:
    third = "" if one.last_third is None else f"{one.last_third:.1f}"
    spread = "" if one.spread is None else f"{one.spread:.1%}"
    verdict = ("yes" if one.flat else "no") if one.judged else "too short to judge"
    figures = (f"{one.first:.1f}", f"{one.last:.1f}", f"{one.most:.1f}")
    return (f"port {one.port}", *figures, third, spread, verdict)
