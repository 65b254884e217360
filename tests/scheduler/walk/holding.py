"""What must hold after every step, read back from Postgres, and what at the end of a run."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import asyncpg
from tests.history import ledgers, lives, rows
from tests.history.checking import assert_sound, consecutive
from tests.history.facts import History, Row
from tests.history.truth import Truth
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.walk import accounts, together
from tests.scheduler.walk.life import Walk
from tests.scheduler.world import World

from nodus_api.kernel.money import cumulative_usd
from nodus_api.suppliers.supplier import MachineIntent

_TABLES = (
    "workloads", "slots", "commands", "attempts", "attempt_work", "placements",
    "placement_rejections", "interruptions", "checkpoints", "machines", "machine_events", "leases",
    "runner_reports", "cost_segments", "idle_time", "orphans", "holds", "funds", "fund_entries",
    "supplier_costs", "project_quotas",
)  # fmt: skip
_ROWS = "SELECT coalesce(jsonb_agg(to_jsonb(x) ORDER BY to_jsonb(x)::text), '[]') FROM nodus.{} x"
_PARTS = ", ".join(f"'{name}', ({_ROWS.format(name)})" for name in _TABLES)
DUMP = f"SELECT jsonb_build_object('head', (SELECT max(rev) FROM nodus.changes), {_PARTS})::text"  # noqa: S608 - the names above
_NEW_ROWS = """
SELECT rev, kind::text AS kind, tx::text::bigint AS tx, at, coalesce(uid::text, '') AS uid,
       coalesce(project, '') AS project, coalesce(name, '') AS name, coalesce(doc, '') AS doc
FROM nodus.changes WHERE rev > $1 ORDER BY rev
"""

_IN_USE = ("Granted", "Registered")

Line = Mapping[str, Any]


@dataclass
class Books:
    """The rows as they were after the last step, and what has been seen of them."""

    walk: Walk
    eyes: "asyncpg.Connection[asyncpg.Record]"
    dump: str = ""
    tables: dict[str, list[Line]] = field(default_factory=dict)
    log: list[Row] = field(default_factory=list)

    async def read(self) -> str:
        """Return every row that a step may change, as text."""
        return str(await self.eyes.fetchval(DUMP))

    async def check(self) -> None:
        """Check all that holds at any moment, if anything changed since the last time."""
        assert not self.walk.errors, "\n".join(self.walk.errors)
        self._truth_holds()
        dump = await self.read()
        if dump == self.dump:
            return
        before, self.tables = self.tables, json.loads(dump, parse_float=Decimal)
        self.dump = dump
        for finding in self._findings(before):
            raise AssertionError(finding)
        await check(self._world())
        last = self.log[-1].rev if self.log else 0
        self.log += [Row(**dict(row)) for row in await self.eyes.fetch(_NEW_ROWS, last)]

    async def check_quiet(self) -> None:
        """Check what holds besides once everything is over."""
        await self.check()
        self._log_holds()
        await check_quiet(self._world())
        kept = await rows.read(self.walk.database)
        history = rows.history_of(kept, self.walk.supplier.machines)
        assert_sound(replace(history, quiet=True))

    def drillable(self, *, ranks: bool = False) -> list[tuple[str, str]]:
        """Return names and stages of Attempts that have a machine, by the last check."""
        return [
            (one["name"], one["stage"])
            for one in self.tables.get("attempts", ())
            if one["stage"] in ("Starting", "Running") and (not ranks or one["gang"] is not None)
        ]

    def missing(self) -> bool:
        """Whether a machine in use is not shown to us, which needs several looks to count."""
        shown = {one.handle for one in self.walk.supplier.machines.values()}
        used = [one for one in self.tables.get("machines", ()) if one["state"] in _IN_USE]
        return any(one["handle"] not in shown for one in used)

    def is_over(self, intent: MachineIntent) -> bool:
        """Whether an Attempt has ended, by the rows of the last check."""
        uid = str(intent.attempt_uid)
        found = [one for one in self.tables["attempts"] if one["uid"] == uid]
        return not found or found[0]["finished"] is not None

    def unrest(self, dump: str) -> dict[str, Any]:
        """Return what is left to do, by what `read` gave."""
        tables = json.loads(dump, parse_float=Decimal)
        left = {
            "commands": [one for one in tables["commands"] if one["outcome"] is None],
            "workloads": [one for one in tables["workloads"] if one["state"] == "Active"],
            "attempts": [one for one in tables["attempts"] if one["finished"] is None],
            "machines": [one for one in tables["machines"] if one["state"] != "Gone"],
            "runner_reports": tables["runner_reports"],
            "truth": list(self.walk.supplier.machines.values()),
        }
        return {name: found for name, found in left.items() if found}

    def _world(self) -> World:
        return World(self.walk.database, self.walk.clock, self.walk.supplier)

    def _log_holds(self) -> None:
        """Check the whole log, with the rows that were trimmed; once, as no row of it changes."""
        history = History(log=tuple(self.log))
        truth = Truth(history.log)
        for checker in (consecutive, lives.alone, lives.steps, lives.slots, ledgers.logged):
            for finding in checker(history, truth):
                raise AssertionError(str(finding))

    def _truth_holds(self) -> None:
        twice = {one: times for one, times in self.walk.starts.items() if times > 1}
        assert not twice, f"P-05: a program was started more than once: {twice}"
        assert not self.walk.broken, "\n".join(self.walk.broken)

    def _findings(self, before: Mapping[str, list[Line]]) -> Iterator[str]:
        yield from self._stages(before)
        yield from self._outcomes()
        yield from self._machines()
        yield from self._bills()
        yield from accounts.tenants(self.tables)
        yield from self._checkpoints()
        yield from self._losses()
        yield from self._wanted()
        yield from self._quotas()
        yield from together.findings(self.tables)
        yield from accounts.findings(self.tables)
        yield from accounts.not_put_down(before, self.tables, self.walk.clock.now())

    def _stages(self, before: Mapping[str, list[Line]]) -> Iterator[str]:
        """P-01, P-03: rows move along SC-004 alone; what is set stays."""
        now = {one["no"]: one for one in self.tables["attempts"]}
        for old in before.get("attempts", ()):
            new = now.get(old["no"])
            if new is None:
                continue
            ended = old["finished"] is not None
            if new["stage"] not in lives._REACHES[old["stage"]]:
                yield f"P-01: {old['name']} went from {old['stage']} to {new['stage']}"
            for name in ("stage", "reason", "exit_code", "signal", "finished") if ended else ():
                if old[name] != new[name]:
                    yield f"P-01: {old['name']} ended with {name} {old[name]}, now {new[name]}"
            started = old["command_started"] is None and new["command_started"] is not None
            restamped = started and new["no"] in self._hedged()  # SC-342
            for name in ("queued", "billing_start", "registered", "command_started"):
                if restamped and name in ("billing_start", "registered"):
                    continue
                if old[name] is not None and old[name] != new[name]:
                    yield f"P-03: {old['name']} has {name} {old[name]}, then {new[name]}"

    def _hedged(self) -> set[int]:
        return {one["attempt"] for one in self.tables["leases"] if one["role"] == "hedge"}

    def _outcomes(self) -> Iterator[str]:
        """What is written of an end is what truly happened."""
        exits = {
            (str(one.made.intent.attempt_uid), one.exit.code): one.exit
            for one in self.walk.runners.values()
            if one.exit is not None
        }
        for one in self.tables["attempts"]:
            by_exit = one["reason"] == "CustomerExit" or one["stage"] == "Succeeded"
            if by_exit and (one["uid"], one["exit_code"]) not in exits:
                yield f"{one['name']} ended with {one['exit_code']}, which no program did"
            started = self.walk.starts[one["uid"], one["epoch"]]
            if one["command_started"] is not None and not started:
                yield f"P-05: {one['name']} is said to have started, and never did"

    def _machines(self) -> Iterator[str]:
        """P-10: what is proven gone had ended by then."""
        truth = self.walk.supplier.truth
        billed = accounts.billed_machines(self.tables)
        wiped = {one["attempt"] for one in self.tables["leases"] if one["wiped"] is not None}
        holders = {number: attempt for attempt, number in billed.items() if attempt not in wiped}
        proven = {one["no"]: one["deletion_proven"] for one in self.tables["attempts"]}
        for row in self.tables["machines"]:
            if row["gone"] is None:
                continue
            if row["handle"] is None:
                yield from self._never_made(row)
                continue
            made, at = truth[row["handle"]], _moment(row["gone"])
            if made.ended is None:
                yield f"P-10: {row['key'][:8]} is Gone since {at}, and {made.handle} lives"
            elif at < made.ended.replace(microsecond=0):
                yield f"P-10: {row['key'][:8]} is Gone since {at}, and ended at {made.ended}"
            told = proven.get(holders.get(row["no"]))
            ended = made.ended.replace(microsecond=0) if made.ended else at
            if told and row["billing_start"] and _moment(told) < ended:
                yield f"P-10: deletion proven at {told}, the machine ended at {made.ended}"

    def _never_made(self, row: Line) -> Iterator[str]:
        """SC-609: what was given up as never made was not there; a late create may come after."""
        for made in self.walk.supplier.truth.values():
            there = made.ended is None and made.since <= _moment(row["gone"])
            if there and made.intent.key == row["key"]:
                yield f"SC-609: {row['key'][:8]} is Gone as never made, and {made.handle} lives"

    def _bills(self) -> Iterator[str]:
        """P-11, P-12, P-14: clocks without gap, nothing negative, no workload above its limit."""
        clocks: dict[tuple[int, int], list[Line]] = defaultdict(list)
        for one in self.tables["cost_segments"]:
            clocks[one["attempt"], one["machine"]].append(one)
        for where, lines in clocks.items():
            lines.sort(key=lambda one: int(one["seq"]))
            yield from _clock(where, lines)
        owners = {one["no"]: one["workload"] for one in self.tables["attempts"]}
        spent: dict[str, Decimal] = defaultdict(Decimal)
        for one in self.tables["cost_segments"]:
            if not one["covered"]:
                spent[owners[one["attempt"]]] += _usd(one["usd"])
        for one in self.tables["workloads"]:
            limit = one["spec"]["limits"].get("maxCostUSD")
            if limit is not None and spent[one["uid"]] > Decimal(limit):
                yield f"P-14: {one['name']} may cost {limit} and costs {spent[one['uid']]}"

    def _checkpoints(self) -> Iterator[str]:
        """P-05, P-24: seqs 1, 2, 3 … by epochs in order; what is restored was committed before."""
        slots: dict[tuple[str, str], list[Line]] = defaultdict(list)
        for one in self.tables["checkpoints"]:
            slots[one["workload"], one["slot"]].append(one)
        for where, lines in slots.items():
            lines.sort(key=lambda one: int(one["seq"]))
            if [one["seq"] for one in lines] != list(range(1, len(lines) + 1)):
                yield f"SC-142: {where} has seqs {[one['seq'] for one in lines]}"
            if any(one["epoch"] > two["epoch"] for one, two in pairwise(lines)):
                yield f"P-05: epochs of {where} committed interleaved"
        for one in self.tables["slots"]:
            if one["last_seq"] != len(slots[one["workload"], one["slot"]]):
                yield f"SC-142: slot {one['slot']} has last_seq {one['last_seq']}"
        for one in self.tables["attempts"]:
            yield from _restore(one, slots[one["workload"], one["slot"]])

    def _losses(self) -> Iterator[str]:
        """P-22: 0 ≤ lostSeconds ≤ running time; recovery is told once a later epoch started."""
        attempts = {one["no"]: one for one in self.tables["attempts"]}
        starts: dict[tuple[str, str], list[int]] = defaultdict(list)
        for one in attempts.values():
            if one["command_started"] is not None:
                starts[one["workload"], one["slot"]].append(one["epoch"])
        for one in self.tables["interruptions"]:
            of = attempts[one["attempt"]]
            begun, ended = of["command_started"], _moment(of["finished"])
            ran = (ended - _moment(begun)).total_seconds() if begun else 0
            if not 0 <= one["lost_seconds"] <= ran:
                yield f"P-22: {of['name']} ran {ran} s and lost {one['lost_seconds']}"
            later = any(e > of["epoch"] for e in starts[of["workload"], of["slot"]])
            recovered = one["recovery_seconds"]
            if (recovered is not None) != later or (recovered or 0) < 0:
                yield f"P-22: {of['name']}: recovery {recovered}, later start {later}"

    def _wanted(self) -> Iterator[str]:
        """SC-120, SC-802: no more live than wanted for a moment's end, none after the end."""
        workloads = {one["uid"]: one for one in self.tables["workloads"]}
        for one in self.tables["attempts"]:
            owner = workloads[one["workload"]]
            if owner["ended"] is not None and _moment(one["queued"]) > _moment(owner["ended"]):
                yield f"{one['name']} began after {owner['name']} was over"
            if not 0 <= int(one["slot"]) < owner["spec"]["completions"]:
                yield f"{one['name']} has a slot that nobody wanted"

    def _quotas(self) -> Iterator[str]:
        """SC-310 row 16: no more machines at once than the quota of the only project."""
        there = sum(one["state"] != "Gone" for one in self.tables["machines"])
        for one in self.tables["project_quotas"]:
            if there > one["max_count"]:
                yield f"SC-310: {there} machines are there, the quota is {one['max_count']}"


def _clock(where: tuple[int, int], lines: list[Line]) -> Iterator[str]:
    for one, two in pairwise(lines):
        if one["to_ts"] != two["from_ts"]:
            yield f"P-11: {where} has a gap after {one['to_ts']}"
    for one in lines:
        if _usd(one["usd"]) < 0 or _moment(one["from_ts"]) >= _moment(one["to_ts"]):
            yield f"P-12: {where} has a segment {one}"
    span = _moment(lines[-1]["to_ts"]) - _moment(lines[0]["from_ts"])
    whole = cumulative_usd(_usd(lines[0]["rate"]), int(span.total_seconds()))
    total = sum((_usd(one["usd"]) for one in lines), Decimal(0))
    if total != whole:
        yield f"P-11: {where} sums to {total}, its clock to {whole}"


def _restore(attempt: Line, lines: list[Line]) -> Iterator[str]:
    seq = attempt["restore_seq"]
    if seq is None:
        return
    found = [one for one in lines if one["seq"] == seq]
    if not found or found[0]["epoch"] >= attempt["epoch"]:
        yield f"P-24: {attempt['name']} goes on from {seq}, which no earlier epoch committed"
    if any(one["seq"] <= seq for one in lines if one["epoch"] >= attempt["epoch"]):
        yield f"P-24: {attempt['name']} goes on from {seq} and committed what is not after it"
    done, total = attempt["cursor_completed"], attempt["cursor_total"]
    if done is not None and done > total:
        yield f"P-24: {attempt['name']} goes on at {done} of {total}"


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _usd(value: Any) -> Decimal:
    return Decimal(str(value))
