"""The report server on a real socket: what runners send, and every way to be refused."""

import asyncio
import json
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from tests.scheduler.world import World

from nodus_api.scheduler.health import HealthServer
from nodus_api.scheduler.listening import unix_socket
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.scheduler.reports import BODY_LIMIT, PATH, ReportServer
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.storage.report_store import ReportStore
from nodus_api.suppliers.supplier import MachineIntent
from nodus_api.tasks import spawn

REQUEST = UUID("11111111-1111-4111-8111-111111111111")


@dataclass
class Desk:
    """A report server, the client of one runner, and how often it woke the loop."""

    world: World
    client: httpx.AsyncClient
    intent: MachineIntent
    wakes: list[None]
    path: Path

    async def post(self, **fields: Any) -> httpx.Response:
        body = {
            "attempt": str(self.intent.attempt_uid),
            "epoch": self.intent.epoch,
            "machine": self.intent.key,
            "fence": self.intent.fence,
            "n": 1,
            "kind": "heartbeat",
            "ageMs": 0,
        } | fields
        return await self.client.post(PATH, content=json.dumps(body), headers=self.bearer)

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.intent.token}"}


@pytest.fixture
async def desk(world: World) -> AsyncIterator[Desk]:
    await world.submit()
    await world.settle()
    intent = (await world.runner()).intent
    folder = Path(tempfile.mkdtemp(prefix="nodus-"))
    path, stop = folder / "runner.sock", asyncio.Event()
    wakes: list[None] = []

    async def wake() -> None:
        wakes.append(None)

    server = ReportServer(
        ReportStore(world.database),
        wake=wake,
        metrics=LoopMetrics(),
        new_id=lambda: REQUEST,
    )
    serving = spawn("reports", server.serve([unix_socket(path)], stop))
    transport = httpx.AsyncHTTPTransport(uds=str(path), retries=5)
    async with httpx.AsyncClient(transport=transport, base_url="http://runner") as client:
        yield Desk(world, client, intent, wakes, path)
    stop.set()
    await serving
    shutil.rmtree(folder)


async def test_a_report_is_kept_and_answered_with_orders(desk: Desk) -> None:  # SC-641, SC-645
    answer = await desk.post(kind="registered", checks={"cpus": 2}, pullMs=1500)
    assert answer.status_code == 200
    assert answer.json() == {"orders": []}
    (row,) = await desk.world.rows(t.runner_reports)
    assert (row["n"], row["kind"]) == (1, "registered")
    assert row["body"] == {"checks": {"cpus": 2}, "pullMs": 1500}
    assert len(desk.wakes) == 1


async def test_the_event_is_as_old_as_the_report_says(desk: Desk) -> None:  # SC-615
    await desk.post(kind="exited", ageMs=2500, exitCode=0)
    (row,) = await desk.world.rows(t.runner_reports)
    assert (row["received"] - row["event_at"]).total_seconds() == 2.5


async def test_a_start_is_granted_by_a_later_answer(desk: Desk) -> None:  # SC-645
    await desk.post(kind="registered", checks={})
    answer = await desk.post(kind="canStart", n=2)
    assert answer.json() == {"orders": [], "granted": False, "lastSeq": 0, "retryMs": 200}
    await desk.world.settle()
    answer = await desk.post(kind="canStart", n=3)
    assert answer.json() == {"orders": [], "granted": True, "lastSeq": 0}


async def test_a_program_that_has_started_is_not_granted_again(desk: Desk) -> None:  # SC-341
    await desk.post(kind="registered", checks={})
    await desk.post(kind="canStart", n=2)
    await desk.world.settle()
    await desk.post(kind="started", n=3)
    await desk.world.settle()
    for n in (2, 4):  # a second runner of the machine counts from 1
        answer = await desk.post(kind="canStart", n=n)
        assert answer.json() == {"orders": [{"kind": "die"}], "granted": False, "lastSeq": 0}


async def test_a_heartbeat_wakes_nobody(desk: Desk) -> None:
    assert (await desk.post(kind="heartbeat")).status_code == 200
    assert desk.wakes == []


async def test_a_stale_epoch_is_told_so(desk: Desk) -> None:  # SC-125
    answer = await desk.post(epoch=2)
    assert answer.status_code == 409
    body = answer.json()
    assert (body["kind"], body["status"], body["reason"]) == ("Status", "Failure", "StaleEpoch")
    assert body["requestId"] == str(REQUEST)
    assert body["fix"]
    assert await desk.world.rows(t.runner_reports) == []


async def test_without_a_known_token_nothing_is_read(desk: Desk) -> None:
    body = {"attempt": str(REQUEST), "epoch": 1, "n": 1, "kind": "heartbeat", "ageMs": 0}
    for header in ({}, {"Authorization": "Bearer guess"}, {"Authorization": "x"}):
        answer = await desk.client.post(PATH, content=json.dumps(body), headers=header)
        assert answer.status_code == 401
        assert answer.json()["reason"] == "Unauthorized"


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n"),
    ({"n": "1"}, "n"),
    ({"epoch": None}, "epoch"),
    ({"kind": "dance"}, "kind"),
    ({"ageMs": -1}, "ageMs"),
    ({"attempt": "me"}, "attempt"),
    ({"kind": "exited", "exitCode": 256}, "exitCode"),
    ({"kind": "registered", "checks": {"failed": "all"}}, "checks.failed"),
]


async def test_a_malformed_report_names_its_field(desk: Desk) -> None:  # SC-641
    for fields, field in MALFORMED:
        answer = await desk.post(**fields)
        assert answer.status_code == 400
        assert f"the report's {field} is wrong" in answer.json()["message"]


async def test_what_is_no_json_is_refused(desk: Desk) -> None:
    answer = await desk.client.post(PATH, content=b"{", headers=desk.bearer)
    assert answer.status_code == 400


async def test_a_body_is_at_most_64_kib(desk: Desk) -> None:  # SC-645
    assert (await desk.post(kind="exited", message="x" * (BODY_LIMIT - 500))).status_code == 200
    (row,) = await desk.world.rows(t.runner_reports)
    assert row["body"] == {"message": "x" * 1024}  # SC-641
    assert (await desk.post(kind="exited", message="x" * BODY_LIMIT)).status_code == 413


WRONG: list[tuple[str, int, dict[str, Any]]] = [
    ("malformed", 400, {"kind": "exited", "exitCode": 256}),
    ("of an unknown kind", 400, {"kind": "dance"}),
    ("of no number", 400, {"n": 0}),
    ("of a coming epoch", 409, {"kind": "exited", "exitCode": 0, "epoch": 2}),
    ("of another Attempt", 409, {"kind": "exited", "exitCode": 0, "attempt": str(REQUEST)}),
    ("too large", 413, {"kind": "exited", "message": "x" * BODY_LIMIT}),
    ("replayed", 200, {"kind": "exited", "exitCode": 5, "n": 5}),
    ("out of order", 200, {"kind": "exited", "exitCode": 5, "n": 2}),
]


@pytest.mark.parametrize(
    ("code", "fields"), [one[1:] for one in WRONG], ids=[one[0] for one in WRONG]
)
async def test_what_is_not_taken_changes_nothing(
    desk: Desk, code: int, fields: dict[str, Any]
) -> None:  # P-06, P-07, SC-125, SC-641, SC-645
    """A refusal has its reason; a replay, or what was overtaken, is acknowledged and ignored."""
    await desk.post(kind="registered", checks={}, n=4)
    await desk.post(kind="heartbeat", n=5)
    await desk.world.settle()
    before = [await desk.world.rows(one) for one in _REACHED]

    answer = await desk.post(**{"n": 6} | fields)

    assert answer.status_code == code
    if code != 200:
        body = answer.json()
        assert (body["kind"], body["status"]) == ("Status", "Failure")
        assert body["reason"]
        assert body["message"]
    await desk.world.settle()
    assert [await desk.world.rows(one) for one in _REACHED] == before


_REACHED = [
    t.attempts, t.attempt_objects, t.attempt_work, t.changes, t.checkpoints, t.cost_segments,
    t.leases, t.machine_events, t.machines, t.runner_reports, t.slots,
]  # fmt: skip
"""All that a report could change."""


async def test_other_paths_and_methods_have_their_codes(desk: Desk) -> None:
    assert (await desk.client.get(PATH)).status_code == 405
    assert (await desk.client.post("/else")).status_code == 404


async def test_the_socket_is_for_its_owner_alone(desk: Desk) -> None:  # SC-645
    assert stat.S_IMODE(os.stat(desk.path).st_mode) == 0o600


async def test_health_tells_of_the_database(world: World, clean_database: str) -> None:  # SC-645
    folder, stop = Path(tempfile.mkdtemp(prefix="nodus-")), asyncio.Event()
    nowhere = Database("postgresql://nobody@localhost:1/none", role=Role.SCHEDULER)
    statuses = []
    for name, database in (("good", world.database), ("bad", nowhere)):
        metrics = LoopMetrics()
        metrics.passes.inc()
        server = HealthServer(LeaderStore(database), metrics)
        serving = spawn("health", server.serve([unix_socket(folder / name)], stop))
        transport = httpx.AsyncHTTPTransport(uds=str(folder / name), retries=5)
        async with httpx.AsyncClient(transport=transport, base_url="http://health") as client:
            paths = ("/livez", "/readyz", "/metrics", "/else")
            statuses += [(name, path, (await client.get(path)).status_code) for path in paths]
            assert "nodus_scheduler_passes_total 1.0" in (await client.get("/metrics")).text
        stop.set()
        await serving
        stop.clear()
    await nowhere.close()
    shutil.rmtree(folder)
    assert statuses == [
        ("good", "/livez", 200),
        ("good", "/readyz", 200),
        ("good", "/metrics", 200),
        ("good", "/else", 404),
        ("bad", "/livez", 200),
        ("bad", "/readyz", 500),
        ("bad", "/metrics", 200),
        ("bad", "/else", 404),
    ]
