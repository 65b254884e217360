"""H-23 across the books: rows, document, log and machines of one commit say the same."""

from collections.abc import Iterator
from decimal import Decimal
from itertools import groupby, pairwise

from tests.history.facts import Account, Finding, History, Ledger, Segment
from tests.history.truth import Truth, Version

_SHOWN = {"Boot": "bootUSD", "Restore": "restoreUSD", "Running": "runningUSD"}
_NOTHING = Decimal(0)


def projected(history: History, _: Truth) -> Iterator[Finding]:
    """H-23: every stored document is what the rows of the same commit project to."""
    for ledger in history.ledgers:
        for account in ledger.accounts:
            if account.stored != account.rendered:
                yield _finding(
                    "H-23",
                    ledger,
                    account,
                    f"the rows project to {account.rendered!r}",
                    f"the document is {account.stored!r}",
                )


def logged(history: History, truth: Truth) -> Iterator[Finding]:
    """H-23: the stored documents are the log's state at that head: none more, less or other."""
    for ledger in history.ledgers:
        state = dict(truth.state(ledger.head))
        for account in ledger.accounts:
            version = state.pop(account.uid, None)
            if version is None or version.rev != account.rev or version.row.doc != account.stored:
                said = f"the log has {version or 'no such object'}"
                yield _finding("H-23", ledger, account, said, f"stored is {account.rev}")
        for version in state.values():
            yield Finding(
                rule="H-23",
                where=f"ledger at {ledger.head}",
                said=f"the log has {version}",
                but="no document of it is stored",
            )


def summed(history: History, truth: Truth) -> Iterator[Finding]:
    """P-11, P-12: the published cost is the sum of the segments, which have no gap or overlap."""
    for ledger in history.ledgers:
        state = truth.state(ledger.head)
        for account in ledger.accounts:
            for machine, rows in groupby(account.segments, key=lambda one: one.machine):
                for one, two in pairwise(rows):
                    if one.end != two.start:
                        yield _finding(
                            "P-11",
                            ledger,
                            account,
                            f"a segment of machine {machine} ends at {one.end}",
                            f"the next starts at {two.start}",
                        )
            version = state.get(account.uid)
            if version is not None:
                yield from _charged(ledger, account, version)


def _charged(ledger: Ledger, account: Account, version: Version) -> Iterator[Finding]:
    actual = version.obj["status"].get("actual")
    told = {} if actual is None else actual["segments"] | {"costUSD": actual["costUSD"]}
    due = {"costUSD": _NOTHING, "teardownUSD": _NOTHING} | dict.fromkeys(_SHOWN.values(), _NOTHING)
    for row in account.segments:
        if not row.covered:
            due[_field(row)] += row.usd
            due["costUSD"] += row.usd
    for field, usd in due.items():
        if Decimal(told.get(field, 0)) != usd:
            yield _finding(
                "P-12",
                ledger,
                account,
                f"the ledger charges {usd} as {field}",
                f"the document tells {told.get(field)}",
            )


def _field(row: Segment) -> str:
    return _SHOWN.get(row.segment, "teardownUSD")


def proven(history: History, truth: Truth) -> Iterator[Finding]:
    """P-10: of an Attempt whose machine is proven gone every machine is Gone."""
    for ledger in history.ledgers:
        state = truth.state(ledger.head)
        for account in ledger.accounts:
            version = state.get(account.uid)
            timings = version.obj["status"]["timings"] if version is not None else {}
            left = [no for no, kept in account.machines if kept != "Gone"]
            if "deletionProvenTime" in timings and left:
                said = f"deletion was proven at {timings['deletionProvenTime']}"
                yield _finding("P-10", ledger, account, said, f"machines {left} are not Gone")


def machines(history: History, _: Truth) -> Iterator[Finding]:
    """P-09, P-10: a machine that is Gone runs nothing; when all is quiet, every one is Gone."""
    for machine in history.machines:
        where = f"machine {machine.key} of {machine.attempt}"
        if machine.alive and machine.state == "Gone":
            yield Finding(rule="P-10", where=where, said="its row says Gone", but="it still runs")
        if history.quiet and machine.state != "Gone":
            yield Finding(
                rule="P-09",
                where=where,
                said="nothing is left to do",
                but=f"its row says {machine.state}",
            )


def _finding(rule: str, ledger: Ledger, account: Account, said: str, but: str) -> Finding:
    return Finding(rule=rule, where=f"{account.name} at {ledger.head}", said=said, but=but)
