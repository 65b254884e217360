"""`nodus simulate --study`: the profiles and two baselines over one simulated week."""

from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from nodus_api.bench.simulation.contenders import CONTENDERS, Contender
from nodus_api.bench.simulation.plot import plot
from nodus_api.bench.simulation.study import START, Study, study
from nodus_api.bench.simulation.virtual import Simulation
from nodus_api.bench.simulation.week import span_of
from nodus_api.cli.errors import Failed, Refused
from nodus_api.cli.options import print_json
from nodus_api.cli.tabular import render_table

_FIGURES = (
    "COST USD",
    "COVERED USD",
    "MEAN HOURS",
    "P95 HOURS",
    "ATTEMPTS",
    "SUCCEEDED",
    "INTERRUPTIONS",
    "LOST HOURS",
    "SPOT",
    "LEAKS",
)
_MOST_SHOWN = 20


async def show_study(*, attempts: int, seed: int, file: Path | None, output: str) -> None:
    """Run the study on databases of its own, print it, and draw it into `file`.

    Raises Refused for a file that cannot be drawn, Failed where a run left something behind.
    """
    _check_drawable(file)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[days]:.1f} simulated days"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=output == "json" or not Console(stderr=True).is_terminal,
    ) as progress:
        days = span_of(attempts).total_seconds() / 86_400
        bars = {one.name: progress.add_task(one.name, total=days, days=0) for one in CONTENDERS}

        def tell(contender: Contender, simulation: Simulation) -> None:
            passed = (simulation.clock.now() - START).total_seconds() / 86_400
            progress.update(bars[contender.name], completed=passed, days=passed)

        done = await study(attempts=attempts, seed=seed, tell=tell)
    _draw(done, file)
    if output == "json":
        print_json(done.to_json())
    else:
        click.echo(study_text(done), nl=False)
    if done.leaks:
        raise Failed(f"{len(done.leaks)} leaks: this is a fault of Nodus; keep the seed.")


def study_text(done: Study) -> str:
    """Return the table, what it was over, and whether the profiles keep what they promise."""
    rows = [
        (
            one.name,
            f"{one.cost_usd:,.2f}",
            f"{one.covered_usd:,.2f}",
            f"{one.mean_hours:.2f}",
            f"{one.slowest_hours:.2f}",
            str(one.attempts),
            str(one.succeeded),
            str(one.interruptions),
            f"{one.lost_hours:.1f}",
            f"{one.spot_share:.0%}",
            str(one.leaks),
        )
        for one in done.lines
    ]
    said = [f"{claim}: {'yes' if held else 'no'}.\n" for claim, held in done.claims.items()]
    return "\n".join(
        (
            render_table(("PLACED BY", *_FIGURES), rows, right=_FIGURES),
            f"{done.slots} slots, seed {done.seed}; hours over the {done.compared} that succeeded"
            " in every run.\n" + "".join(said),
            *(["".join(f"{one}\n" for one in done.leaks[:_MOST_SHOWN])] if done.leaks else []),
        )
    )


def _draw(done: Study, file: Path | None) -> None:
    if file is not None:
        file.write_text(plot(done), encoding="utf-8")


def _check_drawable(file: Path | None) -> None:
    """Refuse before minutes are spent."""
    if file is None:
        return
    if file.suffix != ".svg":
        raise Refused(f"--plot draws SVG: name a file that ends in .svg, not {file.name}.")
    try:
        file.open("a").close()
    except OSError as error:
        raise Refused(f"{file} cannot be written ({error.strerror}): give another file.") from error
