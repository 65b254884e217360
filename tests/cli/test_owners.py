"""`nodus delete`, `suspend`, `resume`, `scale`, `estimate`: refusals, and a live `nodus up`."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.cli.conftest import Nodus
from tests.cli.live import ATTEMPTS, Up, eventually, job
from tests.cli.test_bad_input import free_port, refusal

from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database

VERBS = ("delete", "suspend", "resume")


# bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["delete", "cron/x"], "names no owner"),
        (["suspend", "cron/x"], "names no owner"),
        (["resume", "cron/x"], "names no owner"),
        (["scale", "cron/x", "1"], "names no owner"),
        (["delete", "x", "--wait", "--no-wait"], "do not go together"),
        (["delete", "x", "--wait", "--timeout", "90"], "--timeout: "),
        (["scale", "x", "-1"], "N is '-1': give a whole number from 0 to 100000."),
        (["scale", "x", "many"], "N is 'many'"),
        (["scale", "x", "1.5"], "N is '1.5'"),
        (["scale", "x", "100001"], "N is '100001'"),
        (["scale", "x", "\u0663"], "give a whole number"),
        (["estimate", "-f", "/nonexistent"], "cannot be read"),
    ],
)
def test_wrong_arguments_are_refused(
    nodus: Nodus, arguments: list[str], said: str, tmp_path: Path
) -> None:
    assert said in refusal(nodus(*arguments, "--data-dir", tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [*VERBS, "scale", "estimate"])
def test_an_unreachable_database_is_refused(nodus: Nodus, verb: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(job("train", "true"))
    given: dict[str, list[str]] = {"scale": ["train", "2"], "estimate": ["-f", str(file)]}
    arguments = given.get(verb, ["train"])
    url = f"postgresql://ann:secret@127.0.0.1:{free_port()}/nodus"
    result = nodus(verb, *arguments, "--database-url", url)

    assert result.exit_code == 2
    assert "cannot be reached" in result.stderr
    assert "secret" not in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("verb", [*VERBS, "scale"])
async def test_a_workload_that_is_not_there_is_refused(
    nodus: Nodus, scheduler_database: Database, clean_database: str, verb: str
) -> None:
    arguments = ["nope", "2"] if verb == "scale" else ["nope"]
    for project in ("default", "other"):
        result = await asyncio.to_thread(
            nodus, verb, *arguments, "-n", project, "--database-url", clean_database
        )
        assert f"There is no job/nope in project {project}" in refusal(result)
    async with scheduler_database.transaction(read_only=True) as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(t.commands)) == 0


async def test_an_estimate_refuses_what_submit_refuses(
    nodus: Nodus, clean_database: str, tmp_path: Path
) -> None:  # SC-803
    file = tmp_path / "job.yaml"
    where = ("--database-url", clean_database)
    for text, said in (
        (job("train", "true").replace("spec:", "spec:\n  retries: 3"), "not a known field"),
        ("", ""),
        ("spec: [", ""),
    ):
        file.write_text(text)
        assert said in refusal(await asyncio.to_thread(nodus, "estimate", "-f", file, *where))
    file.write_text(job("train", "true"))
    nowhere = await asyncio.to_thread(nodus, "estimate", "-f", file, "-n", "nope", *where)
    assert "Project 'nope' does not exist" in refusal(nowhere)


async def test_an_estimate_needs_a_catalog(
    nodus: Nodus, clean_database: str, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(job("train", "true"))
    result = await asyncio.to_thread(
        nodus, "estimate", "-f", file, "--database-url", clean_database
    )

    assert result.exit_code == 1
    assert "The catalog is empty" in result.stderr


# live -----------------------------------------------------------------------------------------


def stage(up: Up, owner: str) -> str:
    found = up.attempts(owner)
    return str(found[-1]["status"]["progress"]["stage"]) if found else ""


def archive(up: Up, owner: str) -> list[dict[str, Any]]:
    items = json.loads(up.nodus("get", "--archived", "-o", "json").stdout)["items"]
    return [one for one in items if one["metadata"]["ownerReferences"][0]["name"] == owner]


@pytest.mark.slow
def test_a_running_job_is_deleted_and_its_name_used_again(
    up: Up, open_folder: Path
) -> None:  # SC-806, H-09
    pids = open_folder / "deleted.pid"
    program = f"echo $$ > {pids}; exec sleep 600"
    up.nodus("submit", "-f", "-", stdin=job("doomed", program))
    eventually(lambda: stage(up, "doomed") == "Running" and pids.exists() and pids.read_text())
    pid = int(pids.read_text())
    (before,) = up.attempts("doomed")
    version = up.json(ATTEMPTS)["metadata"]["resourceVersion"]

    done = up.nodus("delete", "job/doomed", "--wait")

    first, second = done.stdout.strip().splitlines()
    assert first.startswith("job/doomed is deleted: ")
    assert second.startswith("job/doomed is gone: ")
    assert up.attempts("doomed") == []
    with up.get(f"{ATTEMPTS}/{before['metadata']['name']}") as answer:
        assert answer.status == 404
    assert not Path(f"/proc/{pid}").exists()
    machines = up.root / "machines"
    assert not [one for one in os.listdir(machines) if len(one) == 64]
    with up.get(
        f"{ATTEMPTS}?watch=1&resourceVersion={version}&timeoutSeconds=3"
        f"&fieldSelector=metadata.name%3D{before['metadata']['name']}"
    ) as answer:
        events = [json.loads(line) for line in answer.read().splitlines()]
    last, gone = events[-2]["object"], events[-1]
    assert gone["type"] == "DELETED"
    assert gone["object"]["status"] == last["status"]
    assert gone["object"]["status"]["reason"] == "Stopped"
    assert gone["object"]["status"]["timings"]["deletionProvenTime"]
    assert int(gone["object"]["metadata"]["resourceVersion"]) > int(
        last["metadata"]["resourceVersion"]
    )
    (kept,) = archive(up, "doomed")
    assert kept == last
    assert before["metadata"]["name"] in up.nodus("get", "--archived").stdout
    twice = refusal(up.nodus("delete", "doomed", check=False))
    assert twice.startswith("There is no job/doomed in project default, or it is deleted: ")

    again = up.nodus("submit", "-f", "-", "--wait", stdin=job("doomed", "sleep 2"))
    assert "job/doomed succeeded" in again.stdout
    (after,) = up.attempts("doomed")
    assert after["metadata"]["name"] != before["metadata"]["name"]
    costs = json.loads(up.nodus("cost", "-o", "json").stdout)  # with the archived, else exit 1
    line = next(one for one in costs["items"] if one["owner"] == "default/job/doomed")
    assert line["attempts"] == 2  # one archived, one live, whatever they cost
    up.nodus("delete", "doomed", "--wait")
    assert len(archive(up, "doomed")) == 2


@pytest.mark.slow
def test_a_job_is_suspended_and_resumed(up: Up) -> None:  # SC-806
    up.nodus("submit", "-f", "-", stdin=job("pausing", "exec sleep 600"))
    eventually(lambda: stage(up, "pausing") == "Running")

    assert up.nodus("suspend", "pausing").stdout.startswith("job/pausing is suspended: ")
    assert "already: nothing changed" in up.nodus("suspend", "pausing").stdout
    eventually(lambda: stage(up, "pausing") == "Stopped")
    assert up.attempts("pausing")[0]["status"]["reason"] == "Suspended"
    assert up.nodus("resume", "job/pausing").stdout == "job/pausing is resumed.\n"
    assert "is not suspended: nothing changed" in up.nodus("resume", "pausing").stdout
    eventually(lambda: len(up.attempts("pausing")) == 2 and stage(up, "pausing") == "Running")

    up.nodus("stop", "pausing")
    for verb, said in (("resume", "it is stopped, which is final"), ("suspend", "it is stopped")):
        assert said in refusal(up.nodus(verb, "pausing", check=False))
    assert "it is stopped already" in refusal(up.nodus("scale", "pausing", "2", check=False))
    up.nodus("delete", "pausing", "--wait")


@pytest.mark.slow
def test_a_job_is_scaled(up: Up) -> None:  # SC-802
    spec = {"completions": 3, "parallelism": 1}
    up.nodus("submit", "-f", "-", stdin=job("widening", "exec sleep 600", **spec))
    eventually(lambda: stage(up, "widening") == "Running")

    assert up.nodus("scale", "widening", "2").stdout == "job/widening is scaled to 2.\n"
    assert "to 2 already: nothing changed" in up.nodus("scale", "widening", "2").stdout
    eventually(lambda: len(up.attempts("widening")) == 2)
    assert "at least 1" in refusal(up.nodus("scale", "widening", "0", check=False))
    up.nodus("delete", "widening", "--no-wait")
    eventually(lambda: up.attempts("widening") == [])


@pytest.mark.slow
def test_a_fixed_kind_is_not_scaled(up: Up) -> None:
    build = job("fixed", "exec sleep 600").replace("kind: Job", "kind: Build")
    up.nodus("submit", "-f", "-", stdin=build)

    assert "has one slot" in refusal(up.nodus("scale", "build/fixed", "2", check=False))
    assert "There is no job/fixed" in refusal(up.nodus("scale", "fixed", "2", check=False))
    up.nodus("delete", "build/fixed", "--wait")


@pytest.mark.slow
def test_an_estimate_is_what_the_placement_then_shows(up: Up, tmp_path: Path) -> None:  # SC-803
    commands = up.nodus("get", "-A", "-o", "json").stdout
    estimated = json.loads(
        up.nodus("estimate", "-f", "-", "-o", "json", stdin=job("guessed", "true")).stdout
    )
    said = up.nodus("estimate", "-f", "-", stdin=job("guessed", "true")).stdout
    assert up.nodus("get", "-A", "-o", "json").stdout == commands  # nothing is written

    up.nodus("submit", "-f", "-", "--wait", stdin=job("guessed", "true"))
    (attempt,) = up.attempts("guessed")
    del estimated["profiles"]  # the same beside what other profiles would choose
    predicted = estimated.pop("predicted")
    assert estimated == attempt["status"]["placement"]
    assert predicted == attempt["status"]["predicted"]
    assert f"job/guessed would run on {estimated['offering']} (on-demand)" in said
    assert predicted["costUSD"] in said
    up.nodus("delete", "guessed")


@pytest.mark.slow
def test_an_estimate_tells_why_nothing_fits(up: Up) -> None:
    large = job("large", "true", resources={"accelerators": ["h100"], "count": 8})
    done = up.nodus("estimate", "-f", "-", stdin=large)

    assert done.stdout.startswith("job/large could never run: ")
    assert "AcceleratorMismatch" in done.stdout
    several = f"{large}---\n{job('small', 'true')}"
    first, second = json.loads(up.nodus("estimate", "-f", "-", "-o", "json", stdin=several).stdout)
    assert "offering" not in first
    assert second["offering"]
