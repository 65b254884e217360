"""`nodus estimate`: the placement of a manifest, decided and not written (SC-803)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click
import sqlalchemy as sa

from nodus_api.attempts import preview
from nodus_api.cli.errors import Failed, Refused
from nodus_api.cli.options import (
    database_options,
    opened,
    output_option,
    print_json,
    project_option,
    run_async,
    settings_from,
)
from nodus_api.cli.profiles import profiles_as_json, profiles_text, side_by_side
from nodus_api.cli.submit import manifests_option, read_manifests
from nodus_api.cli.tabular import render_table
from nodus_api.cli.without_container import note_images
from nodus_api.kernel.calibration import Calibration, factors, usual_hours
from nodus_api.kernel.money import format_hours, format_rate, format_score, format_usd
from nodus_api.kernel.offering import Family
from nodus_api.kernel.placement import Decision, Outcome, PlacementRequest
from nodus_api.kernel.scores import NAMES
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import Profile
from nodus_api.scheduler.catalog import Catalog
from nodus_api.storage import tables as t
from nodus_api.storage.calibration_store import Calibrations, Lineage, read_calibrations
from nodus_api.storage.catalog_store import CatalogStore
from nodus_api.storage.engine import Database
from nodus_api.storage.statements import database_now
from nodus_api.workloads import Manifest, UnknownProject


@click.command()
@manifests_option
@project_option
@database_options
@output_option
@run_async
async def estimate(files: tuple[str, ...], project: str, output: str, **options: Any) -> None:
    """Show where a manifest would be placed and why, without running it.

    The placement is decided as the scheduler does, on the catalog of this moment: candidates with
    their scores, what comes next, what is ruled out and why, and what it is expected to take and to
    cost. With -o json it is what `status.placement` would show, with `predicted`; of several
    documents a list. The profiles Balanced, Cost and Speed are compared, and the one that the
    manifest asks for is marked: with * in the table, with `asked` in `profiles` of the JSON.

    \b
    Example:
      nodus estimate -f job.yaml
      nodus estimate -f job.yaml -o json | jq .predicted.costUSD
      nodus estimate -f job.yaml -o json | jq '.profiles[] | {profile, predicted}'
    """
    settings = settings_from(options)
    manifests = read_manifests(files, project)
    async with opened(settings) as database:
        now, known = await _look(database, manifests)
        classes, offers = await CatalogStore(database, settings.supplier).load()
    catalog = Catalog.of(classes, offers, now)
    if not catalog.snapshot.size:
        raise Failed(
            "The catalog is empty, nothing could be placed: start `nodus up` or `nodus schedule`,"
            " which asks the supplier what there is."
        )
    note_images(manifests, settings.supplier)
    estimates = [_estimate(one, catalog, known.get(_lineage(one), {}), now) for one in manifests]
    if output == "json":
        shown = [one.as_json() for one in estimates]
        print_json(shown if len(shown) > 1 else shown[0])
        return
    for manifest, one in zip(manifests, estimates, strict=True):
        _show(f"{manifest.kind.lower()}/{manifest.name}", one)


async def _look(database: Database, manifests: Sequence[Manifest]) -> tuple[datetime, Calibrations]:
    """Return the database's time, and what earlier runs of these names have taught.

    Raises Refused if one of the projects does not exist.
    """
    projects = {one.project for one in manifests}
    names = sa.select(t.projects.c.name).where(t.projects.c.name.in_(projects))
    async with database.snapshot() as connection:
        known = set((await connection.execute(names)).scalars())
        for name in sorted(projects - known):
            said = str(UnknownProject(name))
            raise Refused(f"{said[:1].upper()}{said[1:]}.")
        now: datetime = (await connection.execute(sa.select(database_now))).scalar_one()
        return now, await read_calibrations(connection, [_lineage(one) for one in manifests])


def _lineage(manifest: Manifest) -> Lineage:
    return Lineage(project=manifest.project, kind=manifest.workload_spec.kind, name=manifest.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimate:
    """What each profile would choose, and which of them the manifest asks for."""

    asked: Profile
    by_profile: Sequence[Decision]

    @property
    def decision(self) -> Decision:
        """Return the decision of the manifest's own profile."""
        return next(one for one in self.by_profile if one.placement.profile is self.asked)

    def as_json(self) -> dict[str, Any]:
        """Return the preview of the manifest's own profile, and of all beside it."""
        compared = profiles_as_json(self.by_profile, self.asked)
        return preview(self.decision.placement) | {"profiles": compared}


def _estimate(
    manifest: Manifest, catalog: Catalog, known: Mapping[Family, Calibration], now: datetime
) -> _Estimate:
    """Decide as for the first Attempt of a new workload (SC-301), under each profile."""
    spec: WorkloadSpec = manifest.workload_spec
    request = PlacementRequest.of(
        spec,
        remaining_cost_usd=spec.limits.max_cost_usd,
        usual_hours=usual_hours(known.values()),
        calibrations=factors(known, spec),
    )
    decisions = side_by_side(request, catalog.snapshot, now)
    return _Estimate(asked=request.policy.profile, by_profile=decisions)


def _show(what: str, estimated: _Estimate) -> None:
    """Print the answer in a sentence, then what was weighed and what was ruled out."""
    decision = estimated.decision
    placement = decision.placement
    click.echo(_answer(what, decision))
    if decision.top:
        click.echo(f"\nThe best of {placement.candidates} candidates, {placement.profile.value}:")
        headings = ["OFFERING", "MARKET", "USD/H", "TOTAL", *(_heading(name) for name in NAMES)]
        rows = [
            [
                one.candidate.offering.name,
                one.candidate.market.value,
                format_rate(one.candidate.rate),
                f"{one.total / 1_000_000:.6f}",
                *(format_score(value) for value in one.scores.published().values()),
            ]
            for one in decision.top
        ]
        click.echo(render_table(headings, rows, right=headings[2:]), nl=False)
        click.echo("\nBy profile, * is what the manifest asks for:")
        click.echo(profiles_text(estimated.by_profile, estimated.asked), nl=False)
    if placement.choice is not None and placement.choice.fallbacks:
        click.echo(f"\nNext, if it has no capacity: {', '.join(placement.choice.fallbacks)}.")
    if placement.rejected:
        click.echo("\nRuled out, near misses first:")
        ruled_out = [[one.offering, one.reason] for one in placement.rejected]
        click.echo(render_table(["OFFERING", "REASON"], ruled_out), nl=False)


def _answer(what: str, decision: Decision) -> str:
    choice = decision.placement.choice
    if choice is not None:
        predicted = choice.predicted
        return (
            f"{what} would run on {choice.offering} ({choice.market.value}) at"
            f" {format_rate(choice.rate_usd_per_hour)} USD an hour: about"
            f" {format_hours(predicted.hours)} h and {format_usd(predicted.cost_usd)} USD an"
            f" Attempt, {format_rate(predicted.interruption_rate)} interruptions an hour expected."
        )
    message = decision.waiting_message or "nothing fits"
    if decision.outcome is Outcome.WAITING:
        return f"{what} would wait now: {message}."
    return f"{what} could never run: {message}."


def _heading(name: str) -> str:
    return {"timeToResult": "TIME", "costToComplete": "COST", "recoveryValue": "RECOVERY"}.get(
        name, name.upper()
    )
