"""Which project a submit is for: -n, else the namespace of the kubeconfig that was given."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.cli.conftest import Nodus
from tests.cli.live import job

from nodus_api.cli import kubeconfig
from nodus_api.clock import SystemClock
from nodus_api.storage import tables as t
from nodus_api.storage.access_store import AccessAdmin
from nodus_api.storage.engine import Database
from nodus_api.tls import ensure_certificates


@pytest.mark.parametrize(
    ("flags", "project"),
    [
        (("--kubeconfig", "ann.kubeconfig"), "team-a"),
        (("--kubeconfig", "ann.kubeconfig", "-n", "default"), "default"),
        (("--kubeconfig", "bare.kubeconfig"), "default"),
        ((), "default"),
    ],
)
async def test_the_namespace_of_a_kubeconfig_is_the_project(  # AS-074
    nodus: Nodus,
    scheduler_database: Database,
    clean_database: str,
    tmp_path: Path,
    flags: tuple[str, ...],
    project: str,
) -> None:
    await AccessAdmin(scheduler_database).create_project("team-a")
    files = ensure_certificates(tmp_path, names=["localhost"], clock=SystemClock())
    assert files.ca is not None
    for name, namespace in (("ann", "team-a"), ("bare", "")):
        text = kubeconfig.render(
            server="https://localhost:1",
            ca=files.ca.read_text(),
            token="word",  # noqa: S106 -- nobody's
            project=namespace,
        )
        (tmp_path / f"{name}.kubeconfig").write_text(text)
    (tmp_path / "job.yaml").write_text(job("train", "true"))
    given = [tmp_path / one if one.endswith(".kubeconfig") else one for one in flags]
    where = ("--no-wait", "--database-url", clean_database)

    done = await asyncio.to_thread(nodus, "submit", "-f", tmp_path / "job.yaml", *given, *where)

    assert done.exit_code == 0, done.output
    async with scheduler_database.transaction(read_only=True) as connection:
        assert list(await connection.scalars(sa.select(t.commands.c.project))) == [project]
