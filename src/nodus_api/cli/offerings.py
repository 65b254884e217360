"""`nodus offerings`: the catalog of what can be rented, for operators."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import click

from nodus_api.cli.errors import Refused
from nodus_api.cli.import_plan import RUNNING, Changes, ImportPlan, plan_import
from nodus_api.cli.offerings_costs import offerings_costs
from nodus_api.cli.offerings_gates import disable, enable, restrict
from nodus_api.cli.offerings_text import (
    CLASS_HEADINGS,
    OFFER_HEADINGS,
    RESTRICTED_HEADINGS,
    class_json,
    listed,
    offer_json,
)
from nodus_api.cli.options import (
    database_options,
    opened,
    output_option,
    print_json,
    run_async,
    settings_from,
)
from nodus_api.kernel.money import parse_decimal
from nodus_api.storage.allowance_store import AllowanceStore
from nodus_api.storage.import_store import ImportStore, Stock
from nodus_api.suppliers.imported import (
    BadFile,
    Listing,
    Rejection,
    read_forms,
    read_native,
    read_skypilot,
)
from nodus_api.suppliers.imported.samples import SAMPLE_CLOUDS, sample_forms, sample_prices

_CLOUD = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_LARGEST_FILE = 64 * 2**20


@click.group()
def offerings() -> None:
    """Import and list what clouds and own fleets offer.

    \b
    Example:
      nodus offerings list
      nodus offerings import --format skypilot --cloud aws --map forms.yaml vms.csv --dry-run
    """


for _command in (disable, enable, restrict, offerings_costs):
    offerings.add_command(_command)


@offerings.command("import")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["skypilot", "native"]),
    default="skypilot",
    show_default=True,
    help="SkyPilot's vms.csv, or a YAML file of an own fleet.",
)
@click.option("--cloud", required=True, help="Name of the cloud or fleet; no user sees it.")
@click.option(
    "--map",
    "mapping",
    type=click.Path(path_type=Path),
    help="What a price list does not say: form, speed, region class.",
)
@click.option("--sample", is_flag=True, help="Some real rows that come with Nodus, and no FILE.")
@click.option("--markup", default="1", show_default=True, help="What makes a rate of a cost.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@database_options
@output_option
@run_async
async def import_(
    file: Path | None,
    sample: bool,
    form: str,
    cloud: str,
    mapping: Path | None,
    markup: str,
    dry_run: bool,
    output: str,
    **options: Any,
) -> None:
    """Import all that a cloud or an own fleet offers.

    What FILE no longer lists is retired; a row that cannot be believed is told with its line and
    its cause, and its offer stays as it was. A second import of the same FILE changes nothing, and
    what runs keeps its rate.

    \b
    Example:
      nodus offerings import --sample --cloud nebius --dry-run
      nodus offerings import --format skypilot --cloud nebius --map forms.yaml vms.csv --markup 1.10
      nodus offerings import --format native --cloud hall-1 fleet.yaml --dry-run
    """
    if not _CLOUD.fullmatch(cloud) or cloud in RUNNING:
        raise Refused(
            f"--cloud {cloud!r} cannot be used: write lower-case letters, digits and dashes,"
            f" and none of {', '.join(RUNNING)}, which tell themselves what they offer."
        )
    factor = _markup(markup)
    if sample:
        if file is not None or mapping is not None or form != "skypilot":
            raise Refused("--sample is a price list and its map: give no FILE, --map or --format.")
        source, listing = "the sample", _sample(cloud, factor)
    elif file is None:
        raise Refused("No FILE is given: name a price list, or give --sample.")
    else:
        source, listing = str(file), _listing(file, form, cloud, mapping, factor)
    plan = partial(_plan, source=source, cloud=cloud, listing=listing, markup=factor)
    async with opened(settings_from(options)) as database:
        store = ImportStore(database)
        planned = plan(await store.stock()) if dry_run else await store.change(plan)
    if output == "json":
        print_json(_as_json(planned, dry_run))
    else:
        click.echo(_as_text(planned, dry_run), nl=False)


@offerings.command("list")
@click.option("--all", "retired_too", is_flag=True, help="Retired classes and offers, too.")
@click.option("--offers", "privately", is_flag=True, help="Who offers what at which cost.")
@database_options
@output_option
@run_async
async def list_(retired_too: bool, privately: bool, output: str, **options: Any) -> None:
    """List the classes that can be rented, or with --offers the private rows behind them.

    Rates and costs are USD per hour of the whole machine.

    \b
    Example:
      nodus offerings list
      nodus offerings list --offers -o json
    """
    async with opened(settings_from(options)) as database:
        stock = await ImportStore(database).stock()
        open_to = (await AllowanceStore(database).read()).open_to
    if privately:
        shown = [
            offer_json(supplier, one)
            for supplier, offers in sorted(stock.offers.items())
            for one in sorted(offers, key=lambda one: (one.instance_type, one.region, one.zone))
            if one.enabled or retired_too
        ]
        headings = OFFER_HEADINGS
    else:
        shown = [
            class_json(one, retired=name in stock.retired, open_to=open_to.get(name))
            for name, one in sorted(stock.classes.items())
            if retired_too or name not in stock.retired
        ]
        headings = RESTRICTED_HEADINGS if open_to else CLASS_HEADINGS
    if output == "json":
        print_json({"items": shown})
    else:
        click.echo(listed(headings, shown), nl=False)


def _plan(
    stock: Stock, *, source: str, cloud: str, listing: Listing, markup: Decimal
) -> ImportPlan:
    """Plan the import. Raises Refused if it would take no row, for what reason it says."""
    planned = plan_import(stock, cloud, listing, markup)
    if len(planned.rejected) >= len(listing.rows) + len(listing.rejected) > 0:
        first = planned.rejected[0]
        raise Refused(
            f"{source}: no row can be taken, line {first.line} for one: {first.cause}; nothing"
            " was changed."
        )
    return planned


def _markup(text: str) -> Decimal:
    try:
        markup = parse_decimal(text)
    except ValueError:
        markup = Decimal(0)
    if not 0 < markup <= 100:
        raise Refused(f"--markup {text!r} must be a number above 0 and at most 100, like 1.10.")
    return markup


def _sample(cloud: str, markup: Decimal) -> Listing:
    if cloud not in SAMPLE_CLOUDS:
        raise Refused(
            f"There is no sample of {cloud}: give --cloud {', '.join(SAMPLE_CLOUDS)}, or a FILE."
        )
    return read_skypilot(sample_prices(cloud), read_forms(sample_forms(), cloud), markup=markup)


def _listing(file: Path, form: str, cloud: str, mapping: Path | None, markup: Decimal) -> Listing:
    if form == "native":
        if mapping is not None:
            raise Refused("--map is for --format skypilot: a native file says all itself.")
        text = _read(file)
        try:
            return read_native(text, markup=markup)
        except BadFile as error:
            raise Refused(f"{file}: {error}.") from error
    if mapping is None:
        raise Refused(
            "--format skypilot needs --map FILE, which says form, speed and region class"
            " of what the price list names."
        )
    known = _read(mapping)
    try:
        forms = read_forms(known, cloud)
    except BadFile as error:
        raise Refused(f"{mapping}: {error}.") from error
    text = _read(file)
    try:
        listing = read_skypilot(text, forms, markup=markup)
    except BadFile as error:
        raise Refused(f"{file}: {error}.") from error
    if not (listing.rows or listing.rejected):
        raise Refused(f"{file}: it lists nothing that has a price: nothing was changed.")
    return listing


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened_file:
            data = opened_file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}.") from error
    if len(data) > _LARGEST_FILE:
        raise Refused(f"{file} is larger than 64 MiB: no price list is.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"{file} is not UTF-8 text at byte {error.start}.") from error


def _as_json(plan: ImportPlan, dry_run: bool) -> dict[str, Any]:
    return {
        "dryRun": dry_run,
        "offers": _changes_json(plan.offers) | {"unchanged": plan.unchanged},
        "classes": _changes_json(plan.classes),
        "rejected": [_rejection_json(one) for one in plan.rejected],
        "skipped": [_rejection_json(one) for one in plan.skipped],
        "nothingRetired": plan.nothing_retired,
    }


def _changes_json(changes: Changes) -> dict[str, Any]:
    return {
        "added": list(changes.added),
        "changed": list(changes.changed),
        "retired": list(changes.retired),
    }


def _rejection_json(one: Rejection) -> Mapping[str, object]:
    return {"line": one.line, "cause": one.cause}


def _as_text(plan: ImportPlan, dry_run: bool) -> str:
    lines = [*_changes_text("class", plan.classes), *_changes_text("offer", plan.offers)]
    lines += _rejections_text("rejected", plan.rejected)
    lines += _rejections_text("skipped", plan.skipped)
    if plan.nothing_retired:
        lines.append("Nothing is retired: a rejected line does not say which offer it is of.")
    counts = (
        f"{len(plan.offers.added)} added, {len(plan.offers.changed)} changed,"
        f" {len(plan.offers.retired)} retired, {plan.unchanged} unchanged,"
        f" {len(plan.rejected)} rejected, {len(plan.skipped)} skipped."
    )
    lines.append(f"Offers: {counts}" + (" Dry run: nothing is written." if dry_run else ""))
    return "".join(f"{line}\n" for line in lines)


def _changes_text(what: str, changes: Changes) -> list[str]:
    return [
        f"{did} {what} {name}"
        for did, names in (
            ("added", changes.added),
            ("changed", changes.changed),
            ("retired", changes.retired),
        )
        for name in names
    ]


def _rejections_text(did: str, rejections: Sequence[Rejection]) -> list[str]:
    return [f"{did} line {one.line}: {one.cause}" for one in rejections]
