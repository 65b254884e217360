"""`nodus project fund`: deposits and what they pay, exact to the micro-dollar (SC-620)."""

import json

import pytest
from tests.cli.conftest import Nodus


@pytest.mark.parametrize(
    ("usd", "said"),
    [
        ("0", "USD must be above 0"),
        ("-5", "not a decimal number"),
        ("5 USD", "not a decimal number"),
        ("1e3", "not a decimal number"),
        ("0.0000001", "more than 6 decimals"),
        ("1000000000.01", "at most 1,000,000,000"),
        ("\u0663", "not a decimal number"),
    ],
)
def test_what_is_no_amount_is_refused(
    nodus: Nodus, clean_database: str, usd: str, said: str
) -> None:
    done = nodus("project", "fund", "default", "--database-url", clean_database, "--", usd)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    shown = nodus("project", "fund", "default", "--database-url", clean_database)
    assert "not controlled" in shown.stdout


def test_a_project_that_is_not_there(nodus: Nodus, clean_database: str) -> None:
    for arguments in (["nowhere", "5"], ["nowhere"]):
        done = nodus("project", "fund", *arguments, "--database-url", clean_database)
        assert done.exit_code == 2
        assert "nodus project create nowhere" in done.stderr


def test_deposits_add_up(nodus: Nodus, clean_database: str) -> None:
    at = ("--database-url", clean_database)
    assert nodus("project", "fund", "default", "10.5", *at).exit_code == 0
    done = nodus("project", "fund", "default", "0.000001", "-o", "json", *at)

    shown = json.loads(done.stdout)
    assert (shown["controlled"], shown["balanceUSD"]) == (True, "10.500001")
    assert [(one["kind"], one["amountUSD"], one["project"]) for one in shown["entries"]] == [
        ("Opening", "0.000000", "default"),
        ("Deposit", "10.500000", "default"),
        ("Deposit", "0.000001", "default"),
    ]
    text = nodus("project", "fund", "default", *at).stdout
    assert text.startswith("Organization default\n  balance   10.500001 USD\n")


def test_projects_of_an_organization_share_its_funds(nodus: Nodus, clean_database: str) -> None:
    at = ("--database-url", clean_database)
    for name in ("lab", "field"):
        assert nodus("project", "create", name, "--organization", "acme", *at).exit_code == 0
    nodus("project", "fund", "lab", "7", *at)
    for name, balance in (("field", "7.000000"), ("default", None)):
        shown = json.loads(nodus("project", "fund", name, "-o", "json", *at).stdout)
        assert shown["balanceUSD"] == balance


def test_a_bad_organization_is_refused(nodus: Nodus, clean_database: str) -> None:
    done = nodus(
        *("project", "create", "lab", "--organization", "Acme", "--database-url", clean_database)
    )
    assert done.exit_code == 2
    assert "cannot name an organization" in done.stderr
