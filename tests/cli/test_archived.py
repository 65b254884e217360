"""`nodus get --archived`: the newest end first, a page at a time, chosen as users expect."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from tests.cli.conftest import Nodus
from tests.cli.test_bad_input import refusal
from tests.watchcache.feed_log import document

from nodus_api.clock import SystemClock

NOW = SystemClock().now().replace(microsecond=0)
EARLY = datetime(2026, 1, 31, 23, 59, 58, tzinfo=UTC)


class Archive:
    """Commands on a database whose archive a test filled."""

    def __init__(self, nodus: Nodus, url: str) -> None:
        self._nodus = nodus
        self._url = url
        self._made = 0

    async def add(
        self, name: str, finished: datetime, *, project: str = "default", **more: str
    ) -> None:
        self._made += 1
        uid, owner = UUID(int=self._made), more.get("owner", "train")
        labels = {"nodus.dev/job": owner} | ({"team": more["team"]} if "team" in more else {})
        phase = more.get("phase", "Succeeded")
        doc = document(uid, project, name, labels, {"status.phase": phase}, 0)
        connection: Any = await asyncpg.connect(self._url)
        await connection.execute("SELECT nodus.ensure_archive($1)", finished)
        await connection.execute(
            "INSERT INTO nodus.attempts_archive (finished, uid, project, name, workload,"
            " workload_kind, workload_name, slot, epoch, phase, rev, usd, ledger, doc)"
            " VALUES ($1, $2, $3, $4, $2, 'Job', $5, '0', 1, $6, 7, 0, '[]', $7)",
            *(finished, uid, project, name, owner, phase, doc),
        )
        await connection.close()

    async def run(self, *arguments: str) -> Any:
        return await asyncio.to_thread(
            self._nodus, "get", "--archived", *arguments, "--database-url", self._url
        )

    async def page(self, *arguments: str) -> tuple[list[str], str | None]:
        """Return the names shown, in order, and where to go on."""
        result = await self.run(*arguments, "-o", "json")
        assert result.exit_code == 0, result.stderr
        found = json.loads(result.stdout)
        names = [one["metadata"]["name"] for one in found["items"]]
        return names, found.get("metadata", {}).get("continue")

    async def names(self, *arguments: str) -> list[str]:
        names, more = await self.page(*arguments)
        assert more is None
        return names


@pytest.fixture
async def archive(nodus: Nodus, clean_database: str) -> Archive:
    made = Archive(nodus, clean_database)
    await made.add("old", EARLY)
    await made.add("next-month", EARLY + timedelta(seconds=2))
    await made.add("failed", NOW - timedelta(hours=30), phase="Failed", team="red")
    await made.add("twin-a", NOW - timedelta(hours=2), team="red")
    await made.add("twin-b", NOW - timedelta(hours=2), owner="fit")
    await made.add("elsewhere", NOW - timedelta(hours=1), project="other")
    return made


async def test_the_newest_end_comes_first_in_one_project_or_all(archive: Archive) -> None:
    mine = ["twin-b", "twin-a", "failed", "next-month", "old"]
    assert await archive.names() == mine
    assert await archive.names("-A") == ["elsewhere", *mine]
    shown = (await archive.run("-A")).stdout.splitlines()
    assert shown[0].split()[:2] == ["PROJECT", "NAME"]
    assert [line.split()[:2] for line in shown[1:3]] == [
        ["other", "elsewhere"],
        ["default", "twin-b"],
    ]


async def test_it_is_read_in_pages_over_months_and_equal_ends(archive: Archive) -> None:
    everything = await archive.names("-A")
    for limit in (1, 2, 5):
        read: list[str] = []
        going_on: tuple[str, ...] = ()
        while True:
            names, more = await archive.page("-A", "--limit", str(limit), *going_on)
            read += names
            if more is None:
                break
            assert len(names) == limit
            going_on = ("--continue", more)
        assert read == everything
    assert await archive.names("-A", "--limit", "0") == everything
    result = await archive.run("--limit", "1")
    assert "twin-b" in result.stdout
    assert result.stderr.startswith("There are more: go on with --continue 20")


async def test_what_is_chosen_fills_the_page(archive: Archive) -> None:
    assert await archive.names("--owner", "fit") == ["twin-b"]
    assert await archive.names("--phase", "Failed") == ["failed"]
    assert await archive.names("-l", "team=red") == ["twin-a", "failed"]
    names, more = await archive.page("-l", "team=red", "--limit", "1")
    assert (names, more is not None) == (["twin-a"], True)
    assert await archive.names("-l", "team=red", "--continue", more or "") == ["failed"]
    assert await archive.names("failed", "old") == ["failed", "old"]
    assert "no Attempt 'nobody'" in (await archive.run("nobody")).stderr


async def test_since_a_duration_or_a_moment(archive: Archive) -> None:
    assert await archive.names("--since", "150m") == ["twin-b", "twin-a"]
    assert await archive.names("--since", "P2D") == ["twin-b", "twin-a", "failed"]
    assert (await archive.names("--since", "2026-02-01T00:00:00Z"))[-1] == "next-month"
    assert (await archive.names("--since", "2026-02-01T01:00:00+01:00"))[-1] == "next-month"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--archived", "--since", "yesterday"), "--since 'yesterday' is no duration"),
        (("--archived", "--since", "2026-02-01T00:00:00"), "is no duration and no moment"),
        (("--archived", "--continue", "7"), "--continue '7' is no place in the archive"),
        (("--since", "1h"), "--since is for the archive: give --archived too"),
        (("--limit", "5"), "--limit is for the archive"),
        (("--continue", "7"), "--continue is for the archive"),
    ],
)
def test_what_cannot_be_read_is_refused(
    nodus: Nodus, arguments: tuple[str, ...], said: str
) -> None:
    assert said in refusal(nodus("get", *arguments, "--database-url", "postgresql:///x"))
