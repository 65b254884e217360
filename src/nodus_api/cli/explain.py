"""`nodus explain`: why an Attempt ran where it ran, why it waits, why it ended."""

from datetime import datetime
from typing import Any

import click

from nodus_api.cli.errors import Refused
from nodus_api.cli.explain_text import explain_text
from nodus_api.cli.explained import explained
from nodus_api.cli.meant import did_you_mean, no_attempt
from nodus_api.cli.options import (
    database_options,
    opened,
    output_option,
    print_json,
    project_option,
    run_async,
    settings_from,
)
from nodus_api.cli.why_not import answer_of_now, kept_answer
from nodus_api.kernel.explaining import standings
from nodus_api.kernel.offering import OfferingClass
from nodus_api.kernel.request import PlacementRequest
from nodus_api.scheduler.catalog import Catalog
from nodus_api.storage.catalog_store import CatalogStore, Offer
from nodus_api.storage.engine import Database
from nodus_api.storage.lives import Life, database_time, read_life, suppliers


@click.command()
@click.argument("attempt")
@click.option("--why-not", metavar="CLASS", help="One sentence: why not on this offering class.")
@project_option
@database_options
@output_option
@run_async
async def explain(
    attempt: str, why_not: str | None, project: str, output: str, **options: Any
) -> None:
    """Say why an Attempt ran where it ran, what it waits for, and what ended it.

    The scores, the classes ruled out and their numbers are those of the decision's own moment.

    \b
    Example:
      nodus explain train-0-e1-k7f3q
      nodus explain train-0-e1-k7f3q --why-not h100-sxm-80g-x1-us
    """
    async with opened(settings_from(options)) as database:
        async with database.snapshot() as connection:
            life = await read_life(connection, project, attempt)
            if life is None:
                raise await no_attempt(connection, project, attempt)
            now = await database_time(connection)
            names = await suppliers(connection)
        if why_not is not None:
            answer = kept_answer(life, why_not) or await asked_now(
                database, names, life, why_not, now
            )
            show(answer, answer["sentence"] + "\n", output)
        else:
            facts = explained(life, now)
            show(facts, explain_text(facts), output)


def show(facts: dict[str, Any], text: str, output: str) -> None:
    """Print the facts as JSON, or their text."""
    if output == "json":
        print_json(facts)
    else:
        click.echo(text, nl=False)


async def asked_now(
    database: Database, names: list[str], life: Life, offering: str, now: datetime
) -> dict[str, Any]:
    """Look a class up in the catalog of now, under the kept request. Raises Refused."""
    catalog = await _catalog(database, names, now)
    known = sorted({one.offering.name for one in catalog.snapshot})
    name = life.document["metadata"]["name"]
    if offering not in known:
        raise Refused(
            f"There is no offering class {offering!r} in the catalog, and the decision about {name}"
            f" does not name it.{did_you_mean(offering, known)}"
        )
    if life.decision is None:
        why = "is archived without its decision" if life.archived else "has not been placed yet"
        raise Refused(f"{name} {why}: nothing was decided about {offering}.")
    request = PlacementRequest.from_json(life.decision.request)
    return answer_of_now(life, offering, standings(request, catalog.snapshot, offering, now))


async def _catalog(database: Database, names: list[str], now: datetime) -> Catalog:
    classes: dict[str, OfferingClass] = {}
    offers: list[Offer] = []
    for name in names:
        found, theirs = await CatalogStore(database, name).load()
        classes |= {one.name: one for one in found}
        offers += theirs
    return Catalog.of(classes.values(), offers, now)
