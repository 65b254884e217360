"""The cost table: what is charged, covered and archived, and that it must add up."""

import asyncio
import csv
import io
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from tests.cli.conftest import Nodus

from nodus_api.cli.cost import check_costs, costs_as_json, show_costs
from nodus_api.cli.errors import Failed
from nodus_api.cli.ledger import GROUPS, CostLine, CostTable, read_costs
from nodus_api.cli.options import print_csv
from nodus_api.storage.engine import Database

HEAD = '{"apiVersion":"nodus.dev/v1","kind":"Attempt","metadata":{"resourceVersion":""'


def document(usd: str, offering: str = "big") -> bytes:
    placed = f'"placement":{{"offering":"{offering}"}}'
    return f'{HEAD}}},"status":{{"actual":{{"costUSD":"{usd}"}},{placed}}}}}'.encode()


@pytest.fixture
async def ledger(clean_database: str) -> None:
    """Three live Attempts, one of them free, and an archived one; only sums are read."""
    connection: Any = await asyncpg.connect(clean_database)
    await connection.execute("SET session_replication_role = replica; SET search_path = nodus")
    train, old = UUID(int=1), UUID(int=2)
    await connection.execute(
        "INSERT INTO workloads (uid, project, kind, name, spec, created)"
        " VALUES ($1, 'default', 'Job', 'train', '{}', '2026-01-01')",
        train,
    )
    for no, cls in ((1, "big"), (2, "small")):
        await connection.execute(
            "INSERT INTO machines (no, key, organization, offer, offering, market, state, gone,"
            " requested) OVERRIDING SYSTEM VALUE"
            " VALUES ($1, $2, 'default', 1, $2, 'on-demand', 'Gone', '2026-01-01', '2026-01-01')",
            no,
            cls,
        )
    for no in (1, 2, 3):
        await connection.execute(
            "INSERT INTO attempts (no, uid, project, name, workload, slot, epoch, stage, queued,"
            " finished, reason) OVERRIDING SYSTEM VALUE VALUES ($1, gen_random_uuid(), 'default',"
            " $2, $3, $4, 1, 'Failed', '2026-01-01', '2026-01-01', 'Unplaceable')",
            *(no, f"train-{no}", train, str(no)),
        )
    rows = [
        (1, 1, 0, "Boot", 0, 60, False, "0.050000"),
        (1, 1, 1, "Running", 60, 3660, False, "3.000001"),
        (1, 1, 2, "Teardown", 3660, 3690, True, "0.025000"),
        (2, 2, 0, "Restore", 0, 90, False, "0.000003"),
    ]
    for attempt, machine, seq, segment, start, stop, covered, usd in rows:
        await connection.execute(
            "INSERT INTO cost_segments (attempt, machine, seq, segment, from_ts, to_ts, covered,"
            " rate, usd) VALUES ($1, $2, $3, $4, to_timestamp($5), to_timestamp($6), $7, 3, $8)",
            *(attempt, machine, seq, segment, start, stop, covered, Decimal(usd)),
        )
    for no, usd in ((1, "3.050001"), (2, "0.000003"), (3, "0.000000")):
        await connection.execute(
            "INSERT INTO attempt_objects (attempt, uid, project, name, ver, rev, sel, doc)"
            " VALUES ($1, gen_random_uuid(), 'default', $2, 1, $1, '{}', $3)",
            *(no, f"train-{no}", document(usd)),
        )
    await connection.execute("SELECT ensure_archive('2026-01-01')")
    entries = [
        {
            "machine": 1,
            "segment": "Running",
            "from_ts": "2025-12-31T00:00:00Z",
            "to_ts": "2025-12-31T00:10:00Z",
            "covered": False,
            "usd": "0.5",
        }
    ]
    await connection.execute(
        "INSERT INTO attempts_archive (finished, uid, project, name, workload, workload_kind,"
        " workload_name, slot, epoch, phase, rev, usd, ledger, doc) VALUES ('2026-01-02',"
        " gen_random_uuid(), 'default', 'old-0', $3, 'Job', 'old', '0', 1, 'Succeeded', 1,"
        " 0.5, $1, $2)",
        *(json.dumps(entries), document("0.500000"), old),
    )
    await connection.close()


@pytest.mark.usefixtures("ledger")
async def test_live_and_archived_costs_add_up(
    scheduler_database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    async with scheduler_database.snapshot() as connection:
        costs = await read_costs(connection, by="owner", project="default")
        nothing = await read_costs(connection, by="owner", project="other")

    old, train = costs.lines
    assert (old.group, old.attempts, old.seconds) == ("default/job/old", 1, 600)
    assert old.total == Decimal("0.500000")
    assert (train.group, train.attempts, train.seconds) == ("default/job/train", 3, 3750)
    assert train.charged == {
        "Boot": Decimal("0.050000"),
        "Running": Decimal("3.000001"),
        "Restore": Decimal("0.000003"),
        "Teardown": Decimal(0),
    }
    assert train.covered == Decimal("0.025000")
    assert costs.total == costs.documents_total == Decimal("3.550004")
    assert costs.attempts == 4
    check_costs(costs)
    show_costs(costs, "owner")
    assert capsys.readouterr().out.splitlines()[-1] == (
        "0.050000 + 3.500001 + 0.000003 + 0.000000 = 3.550004 USD, as the Attempts themselves say."
    )
    assert (nothing.lines, nothing.total, nothing.adds_up) == ([], Decimal(0), True)


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("project", {"default": "3.550004"}),
        ("offering", {"big": "3.550001", "small": "0.000003"}),
        (
            "segment",
            {
                "Boot": "0.050000",
                "Running": "3.500001",
                "Restore": "0.000003",
                "Teardown": "0.000000",
            },
        ),
    ],
)
async def test_every_grouping_has_the_same_total(
    scheduler_database: Database, by: str, groups: dict[str, str]
) -> None:
    async with scheduler_database.snapshot() as connection:
        costs = await read_costs(connection, by=by, project=None)

    assert {line.group: f"{line.total:f}" for line in costs.lines} == groups
    assert costs.attempts == 4
    shown = costs_as_json(costs, by)
    assert shown["totalUSD"] == shown["attemptsTotalUSD"] == "3.550004"


def test_a_difference_of_a_micro_dollar_is_an_error() -> None:
    line = CostLine(group="a")
    line.charged["Running"] = Decimal("1.000000")
    costs = CostTable(lines=[line], attempts=1, documents_total=Decimal("1.000001"))

    with pytest.raises(Failed, match=r"add up to 1.000000 USD, but the Attempts say 1.000001 USD"):
        check_costs(costs)


# as CSV -----------------------------------------------------------------------------------------


SHEET = """\
owner,attempts,hours,bootUSD,runningUSD,restoreUSD,teardownUSD,totalUSD,coveredUSD\r
default/job/old,1,0.166667,0.000000,0.500000,0.000000,0.000000,0.500000,0.000000\r
default/job/train,3,1.041667,0.050000,3.000001,0.000003,0.000000,3.050004,0.025000\r
"""


@pytest.mark.usefixtures("ledger")
async def test_a_sheet_has_a_header_and_exact_amounts(nodus: Nodus, clean_database: str) -> None:
    where = ("--database-url", clean_database)
    asked = ("cost", "--by", "owner", "-o", "csv")
    first = await asyncio.to_thread(nodus, *asked, *where)
    again = await asyncio.to_thread(nodus, *asked, "-n", "default", *where)

    assert (first.exit_code, first.stderr) == (0, "")
    assert first.stdout_bytes.decode() == SHEET  # RFC 4180: CRLF ends every line
    assert again.stdout_bytes == first.stdout_bytes


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("by", GROUPS)
async def test_a_sheet_says_what_the_json_says(nodus: Nodus, clean_database: str, by: str) -> None:
    where = ("--database-url", clean_database)
    sheet = await asyncio.to_thread(nodus, "cost", "--by", by, "-o", "csv", *where)
    told = await asyncio.to_thread(nodus, "cost", "--by", by, "-o", "json", *where)

    rows = list(csv.DictReader(io.StringIO(sheet.stdout_bytes.decode(), newline="")))
    shown = json.loads(told.stdout)
    assert rows == [
        {key: str(value) for key, value in one.items() if key != "coveredByNodus"}
        for one in shown["items"]
    ]
    total = sum((Decimal(row["totalUSD"]) for row in rows), Decimal(0))
    assert f"{total:f}" == shown["totalUSD"] == "3.550004"


async def test_a_sheet_of_nothing_is_its_header(nodus: Nodus, clean_database: str) -> None:
    sheet = await asyncio.to_thread(nodus, "cost", "-o", "csv", "--database-url", clean_database)

    assert sheet.exit_code == 0
    assert sheet.stdout_bytes.decode() == SHEET.splitlines(keepends=True)[0]


@pytest.mark.usefixtures("ledger")
async def test_a_sheet_that_does_not_add_up_is_an_error(nodus: Nodus, clean_database: str) -> None:
    connection: Any = await asyncpg.connect(clean_database)
    await connection.execute("SET session_replication_role = replica")  # no trigger refuses it
    await connection.execute("UPDATE nodus.cost_segments SET usd = usd + 0.000001 WHERE seq = 1")
    await connection.close()
    asked = ("cost", "-o", "csv", "--database-url", clean_database)
    sheet = await asyncio.to_thread(nodus, *asked)

    assert sheet.exit_code == 1
    assert "add up to 3.550005 USD, but the Attempts say 3.550004 USD" in sheet.stderr


def test_a_quote_and_a_comma_are_quoted(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    print_csv(["owner", "note"], [["a", 'says "b", and c']])

    assert capfdbinary.readouterr().out == b'owner,note\r\na,"says ""b"", and c"\r\n'


def test_a_form_that_is_not_there_is_refused(nodus: Nodus) -> None:
    result = nodus("cost", "-o", "xml")

    assert result.exit_code == 2
    assert "'xml' is not one of 'table', 'json', 'csv'" in result.stderr
