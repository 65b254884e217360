"""`nodus up` for real: take-over, restarts, refusals, and what its clients see meanwhile."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml
from tests.cli.live import ATTEMPTS, Up, eventually, job

from nodus_api.cli import processes
from nodus_api.cli.demo.recount import problems, unfinished
from nodus_api.storage.embedded import EmbeddedPostgres

pytestmark = pytest.mark.slow  # real processes start and end


@pytest.fixture(scope="module")
def recording() -> Iterator[ExitStack]:
    """What records `own`; closing it checks what was seen, and needs the server."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def own(open_folder: Path, recording: ExitStack) -> Iterator[Up]:
    """A `nodus up` whose parts tests kill; each test leaves it running and well, but the last."""
    running = Up(open_folder / "own")
    running.start()
    recording.enter_context(running.recorded())
    yield running
    recording.close()
    assert running.stop() == 0


def test_first_start_writes_what_clients_need(up: Up) -> None:
    config = yaml.safe_load((up.root / "kubeconfig").read_text())
    assert config["contexts"][0]["context"]["namespace"] == "default"
    for name in ("kubeconfig", "token", "database-url"):
        assert (up.root / name).stat().st_mode & 0o777 == 0o600
    assert (up.root / "ca.crt").read_bytes() == (up.root / "certs" / "ca.crt").read_bytes()

    said = up.said()
    assert f"Nodus is ready at {up.server}" in said
    assert (
        f'curl --cacert {up.root}/ca.crt -H "Authorization: Bearer $(cat {up.root}/token)"' in said
    )


def test_a_wrong_token_is_401_and_a_stranger_403(up: Up) -> None:  # AS-055, AS-056
    stranger = json.loads(up.nodus("token", "create", "--user", "eve", "-o", "json").stdout)
    nobody = "nonsense"
    with up.get(ATTEMPTS, token=nobody) as answer:
        status = json.loads(answer.read())
        assert (answer.status, status["reason"]) == (401, "Unauthorized")

    def forbidden() -> bool:
        with up.get(ATTEMPTS, token=stranger["token"]) as answer:
            status = json.loads(answer.read())
            return (answer.status, status["reason"]) == (403, "Forbidden")

    eventually(forbidden, 10)
    assert (stranger["user"], stranger["groups"], stranger["expires"]) == ("eve", [], None)


def test_a_member_may_read_until_the_token_is_revoked(up: Up) -> None:  # AS-067, AS-072
    up.nodus("project", "create", "team-a")
    up.nodus("project", "add-member", "team-a", "--user", "ann")
    made = json.loads(up.nodus("token", "create", "--user", "ann", "-o", "json").stdout)
    path = ATTEMPTS.replace("default", "team-a")

    def status() -> int:
        with up.get(path, token=made["token"]) as answer:
            return int(answer.status)

    eventually(lambda: status() == 200, 10)
    up.nodus("token", "revoke", made["id"])
    eventually(lambda: status() == 401, 10)
    assert up.nodus("token", "revoke", made["id"], check=False).exit_code == 2


def test_submit_waits_follows_and_tells_success(up: Up) -> None:  # SC-801
    done = up.nodus("submit", "-f", "-", "--wait", stdin=job("fine", "exit 0", completions=2))

    lines = done.stdout.splitlines()
    assert lines[0] == "job/fine is submitted."
    assert lines[-1] == "job/fine succeeded."
    assert sum("Succeeded  exit 0" in line for line in lines) >= 2
    again = up.nodus("submit", "-f", "-", stdin=job("fine", "exit 0", completions=2))
    assert again.stdout == (
        "job/fine is there already, with the same spec: nothing changed. It has succeeded: to run"
        " it again, submit it under another name, or delete it first.\n"
    )
    other = up.nodus("submit", "-f", "-", stdin=job("fine", "exit 1"), check=False)
    assert other.exit_code == 2  # SC-802
    assert other.stderr == (
        "Error: job/fine: it exists with another spec, and it has succeeded: submit this one"
        " under another name, or delete it first.\n"
    )
    ended = up.nodus("stop", "fine", check=False)
    assert ended.stderr == "Error: job/fine: it has succeeded already.\n"


def test_submit_wait_tells_failure(up: Up) -> None:
    done = up.nodus("submit", "-f", "-", "--wait", stdin=job("broken", "exit 7"), check=False)

    assert done.exit_code == 1
    (attempt,) = up.attempts("broken")
    name = attempt["metadata"]["name"]
    assert done.stderr == f"Error: job/broken failed: `nodus explain {name}` says why.\n"
    said = up.nodus("explain", name).stdout
    assert (
        "  What to do: Look at exitCode and signal. What the program printed is not kept: " in said
    )
    assert any("Failed  CustomerExit, exit 7" in line for line in done.stdout.splitlines())


def test_a_command_that_is_not_there_is_named(up: Up) -> None:  # T11, SC-640, SC-644
    manifest = yaml.safe_load(job("misspelt", ""))
    manifest["spec"]["template"]["command"] = ["trian.sh"]
    done = up.nodus("submit", "-f", "-", "--wait", stdin=yaml.safe_dump(manifest), check=False)

    assert done.exit_code == 1
    name = up.attempts("misspelt")[0]["metadata"]["name"]
    said = up.nodus("explain", name).stdout
    assert "StartFailed: the program could not be started: command not found: trian.sh.\n" in said


def test_a_stopped_job_is_cancelled(up: Up) -> None:
    up.nodus("submit", "-f", "-", stdin=job("endless", "sleep 600"))
    eventually(lambda: [one["status"]["phase"] for one in up.attempts("endless")] == ["Running"])

    assert up.nodus("stop", "job/endless").stdout == "job/endless is stopped.\n"
    eventually(lambda: [one["status"]["phase"] for one in up.attempts("endless")] == ["Cancelled"])
    assert up.attempts("endless")[0]["status"]["reason"] == "Stopped"
    assert up.nodus("stop", "job/none", check=False).exit_code == 2

    # what is advised can be done as it is said (SC-802, SC-806)
    same = job("endless", "sleep 600")
    again = "to run it again, submit it under another name, or"
    told = up.nodus("submit", "-f", "-", stdin=same).stdout
    assert told.endswith(f"nothing changed. It is stopped: {again} delete it first.\n")
    waited = up.nodus("submit", "-f", "-", "--wait", stdin=same, check=False)
    assert waited.exit_code == 1
    advice = f"{again} run `nodus delete job/endless` first.\n"
    assert waited.stderr == f"Error: job/endless was stopped: {advice}"
    name = up.attempts("endless")[0]["metadata"]["name"]
    explained = up.nodus("explain", name).stdout
    assert f"  What to do: Nothing, if that was wanted; {advice}" in explained
    up.nodus("delete", "job/endless")
    assert up.nodus("submit", "-f", "-", stdin=same).stdout == "job/endless is submitted.\n"
    up.nodus("stop", "job/endless")


def test_views_agree_with_the_api_and_the_segments_add_up(up: Up) -> None:
    up.nodus("submit", "-f", "-", "--wait", stdin=job("billed", "sleep 2"))
    eventually(lambda: "deletionProvenTime" in up.attempts("billed")[0]["status"]["timings"])
    (served,) = up.attempts("billed")
    name = served["metadata"]["name"]

    shown = json.loads(up.nodus("get", name, "-o", "json").stdout)
    assert shown["items"] == [served]
    assert name in up.nodus("get", "--wide").stdout
    missing = up.nodus("get", "no-such", check=False)
    assert (missing.exit_code, missing.stdout) == (2, "")
    costs = {
        by: json.loads(up.nodus("cost", "--by", by, "-o", "json").stdout)
        for by in ("owner", "project", "offering", "segment")
    }
    assert {one["totalUSD"] for one in costs.values()} == {
        one["attemptsTotalUSD"] for one in costs.values()
    }
    (line,) = [one for one in costs["owner"]["items"] if one["owner"] == "default/job/billed"]
    assert line["totalUSD"] == served["status"]["actual"]["costUSD"]
    segments = served["status"]["actual"]["segments"]
    for segment in ("bootUSD", "runningUSD", "restoreUSD", "teardownUSD"):
        assert line[segment] == segments[segment]
    assert "as the Attempts themselves say." in up.nodus("cost").stdout


def test_the_doctor_is_content(up: Up) -> None:
    found = json.loads(up.nodus("doctor", "-o", "json").stdout)

    assert {one["check"]: one["well"] for one in found} == {
        "data directory": True,
        "database": True,
        "server": True,
    }


def test_a_second_up_on_the_same_directory_is_refused(up: Up) -> None:
    def state() -> dict[str, object]:
        files = [path for path in up.root.iterdir() if path.is_file()]
        return {
            **{part: up.pid(part) for part in ("postgres", "schedule", "serve")},
            **{path.name: path.read_bytes() for path in files},
        }

    before = state()
    second = up.nodus("up", "--port", "0", check=False)

    assert second.exit_code == 2
    assert second.stdout == ""
    assert "is in use by another `nodus up`" in second.stderr
    assert state() == before


async def test_an_external_database_is_used_and_left_running(
    postgres: EmbeddedPostgres, open_folder: Path
) -> None:
    connection: Any = await asyncpg.connect(postgres.url)
    await connection.execute("CREATE DATABASE external")
    url = postgres.url.replace("/nodus?", "/external?")

    def live_and_stop() -> list[str]:
        flags = ("--database-url", url, "--retain-finished-count", "7")
        with Up(open_folder / "external", flags) as running:
            parts = sorted(processes.recorded(running.run_dir))
            environ = Path(f"/proc/{running.pid('schedule')}/environ").read_bytes()
            assert b"NODUS_RETAIN_FINISHED_COUNT=7" in environ.split(b"\0")
            done = running.nodus("submit", "-f", "-", "--wait", stdin=job("there", "exit 0"))
            assert done.stdout.endswith("job/there succeeded.\n")
            assert not list(running.root.glob("pg*"))
        return parts

    assert await asyncio.to_thread(live_and_stop) == ["schedule", "serve"]
    found = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = 'external'"
    )
    assert found == 0
    await connection.execute("DROP DATABASE external")
    await connection.close()


@pytest.mark.parametrize("part", ["serve", "schedule", "postgres"])
def test_a_killed_part_comes_back(own: Up, part: str) -> None:
    killed = own.kill_part(part)

    eventually(lambda: own.pid(part) not in (0, killed))
    eventually(lambda: _answers(own))
    done = own.nodus("submit", "-f", "-", "--wait", stdin=job(f"after-{part}", "exit 0"))
    assert done.stdout.endswith(f"job/after-{part} succeeded.\n")


def test_the_next_up_takes_over_after_kill_9(own: Up) -> None:
    own.nodus("submit", "-f", "-", stdin=job("long", "sleep 8; exit 0"))
    eventually(lambda: [one["status"]["phase"] for one in own.attempts("long")] == ["Running"])
    before = {part: own.pid(part) for part in ("postgres", "schedule", "serve")}
    assert all(before.values())
    token = own.token

    own.kill()
    assert {part: own.pid(part) for part in before} == before  # orphans
    own.start()

    after = {part: own.pid(part) for part in before}
    assert after["postgres"] == before["postgres"]  # adopted
    assert after["schedule"] != before["schedule"]
    assert after["serve"] != before["serve"]
    assert own.token == token
    eventually(lambda: [one["status"]["phase"] for one in own.attempts("long")] == ["Succeeded"])


def test_kill_9_of_scheduler_and_postgres_starts_no_program_twice(
    own: Up, open_folder: Path
) -> None:  # field case C14
    starts = open_folder / "starts"
    starts.mkdir()
    starts.chmod(0o777)
    program = f'echo x >> {starts}/$NODUS_SLOT-$NODUS_EPOCH; sleep 4; test "$NODUS_SLOT" != 1'
    own.nodus(
        "submit", "-f", "-", stdin=job("kept", program, completions=3, restart={"maxRetries": 1})
    )

    eventually(lambda: any(own.attempts("kept")))
    for part in ("schedule", "postgres", "schedule"):
        killed = own.kill_part(part)
        eventually(lambda: own.pid(part) not in (0, killed))  # noqa: B023 -- called at once
        eventually(lambda: _answers(own))
    eventually(lambda: len(own.attempts("kept")) == 4 and _ended(own.attempts("kept")), 90)

    assert [
        (one["spec"]["slot"], one["spec"]["epoch"], one["status"].get("exitCode"))
        for one in own.attempts("kept")
    ] == [("0", 1, 0), ("1", 1, 1), ("1", 2, 1), ("2", 1, 0)]
    assert {path.name: path.read_text() for path in starts.iterdir()} == {
        "0-1": "x\n",
        "1-1": "x\n",
        "1-2": "x\n",
        "2-1": "x\n",
    }
    eventually(lambda: not unfinished(own.attempts("kept")))
    assert problems(own.json()["items"]) == []  # the bills of all that these kills went through


def _answers(own: Up) -> bool:
    try:
        with own.get("/readyz") as ready, own.get(ATTEMPTS) as listed:
            return (ready.status, listed.status) == (200, 200)
    except OSError:
        return False


def _settled(attempts: list[dict[str, Any]]) -> bool:
    return all("deletionProvenTime" in one["status"]["timings"] for one in attempts)


def _ended(attempts: list[dict[str, Any]]) -> bool:
    return all(one["status"]["phase"] in ("Succeeded", "Failed") for one in attempts)


def test_kill_9_of_serve_under_a_watch_loses_no_event(own: Up) -> None:
    eventually(lambda: _settled(own.json()["items"]))
    version = str(own.json()["metadata"]["resourceVersion"])
    own.nodus("submit", "-f", "-", stdin=job("watched", "sleep 4"))
    seen: list[tuple[str, str, str]] = []
    kills = 0

    def take(lines: Iterator[bytes]) -> str:
        last = version
        for line in lines:
            event = json.loads(line)
            one = event["object"]
            last = str(one["metadata"]["resourceVersion"])
            seen.append((event["type"], last, one["status"]["progress"]["stage"]))
            if one["status"]["progress"]["stage"] == "Starting" and kills == 0:
                return last
            if "deletionProvenTime" in one["status"]["timings"]:
                return last
        return last

    with own.get(f"{ATTEMPTS}?watch=1&resourceVersion={version}") as answer:
        resumed = take(iter(answer.readline, b""))
        killed = own.kill_part("serve")
        kills += 1
    eventually(lambda: own.pid("serve") not in (0, killed))

    def follows() -> bool:
        try:
            with own.get(f"{ATTEMPTS}?watch=1&resourceVersion={resumed}") as answer:
                if answer.status != 200:
                    return False
                take(iter(answer.readline, b""))
                return True
        except OSError:
            return False

    eventually(follows)
    with own.get(f"{ATTEMPTS}?watch=1&resourceVersion={version}&timeoutSeconds=1") as answer:
        whole = [json.loads(line) for line in iter(answer.readline, b"")]

    assert [one[1] for one in seen] == [
        one["object"]["metadata"]["resourceVersion"] for one in whole
    ]
    assert [stage for _, _, stage in seen][-1] == "Succeeded"
    assert len({version for _, version, _ in seen}) == len(seen)


def test_it_stops_everything_and_leaves_no_trace_of_running(own: Up, recording: ExitStack) -> None:
    """The last test of `own`, which has been through much by then."""
    recording.close()
    living = processes.recorded(own.run_dir)
    before = len(own.said())
    assert own.stop() == 0

    assert sorted(living) == ["postgres", "schedule", "serve"]
    said = [json.loads(line) for line in own.said()[before:].splitlines() if line.startswith("{")]
    stopped = [one for one in said if one["message"] == "A part was stopped"]
    assert [(one["part"], one["exit_code"]) for one in stopped] == [
        ("serve", 0),  # AS-095
        ("schedule", 0),
        ("postgres", 0),
    ]

    assert [processes.identify(one.pid) for one in living.values()] == [None, None, None]
    assert list(own.run_dir.glob("*.pid")) == []
    assert not (own.root / "database-url").exists()
