"""Tables for people, as wide as they need to be: lines are cut by the terminal, never by us."""

import io
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDE = 10_000


def render_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()
) -> str:
    """Return a table as text without trailing spaces; columns named in `right` are flush right."""
    table = Table(box=None, pad_edge=False)
    flush = set(right)
    for heading in headings:
        table.add_column(
            Text(heading), justify="right" if heading in flush else "left", no_wrap=True
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    out = io.StringIO()
    Console(file=out, width=_WIDE, color_system=None).print(table)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
