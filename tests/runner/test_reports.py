"""What the runner tells the server, in which order, and what it does while the server is away."""

import json
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.runner.conftest import Bench
from tests.runner.report_server import GRANT, OK, Reply, Report, granting

from nodus_api.runner import files
from nodus_api.runner.bundle import write_zipapp


async def test_a_life_is_reported_in_order(bench: Bench) -> None:  # SC-641
    bench.prepare("/bin/sh", "-c", "exit 3")
    await bench.run()

    exited = await bench.server.wait_for("exited")

    assert await bench.finished() == 0
    assert bench.server.kinds() == ["registered", "canStart", "started", "exited"]
    assert [report["n"] for report in bench.server.reports] == [1, 2, 3, 4]
    assert bench.server.most_in_flight == 1
    assert bench.server.tokens == {"Bearer secret-of-m1"}
    assert exited == {
        "attempt": "0b6a7f0e-9a4e-4a6e-8f3c-2f7a5f6b1c11",
        "epoch": 1,
        "machine": "m1",
        "fence": 1,
        "n": 4,
        "kind": "exited",
        "ageMs": exited["ageMs"],
        "startAgeMs": exited["startAgeMs"],
        "exitCode": 3,
        "signal": None,
        "oom": False,
        "restoreBytes": None,
        "error": None,
        "message": "",
    }
    assert 0 <= exited["ageMs"] <= exited["startAgeMs"] < 20_000


async def test_a_program_waits_for_its_grant(bench: Bench) -> None:  # SC-341
    marker = bench.root / "marker"
    asked: list[int] = []

    def third_time(report: Report) -> Reply:
        if report["kind"] != "canStart":
            return OK
        assert not marker.exists()
        asked.append(report["n"])
        return GRANT if len(asked) == 3 else (200, {"granted": False, "retryMs": 20, "orders": []})

    bench.server.policy = third_time
    bench.prepare("/usr/bin/touch", str(marker))
    await bench.run()

    await bench.server.wait_for("exited")

    assert asked == [2, 3, 4]
    assert marker.exists()


async def test_an_unanswered_report_is_sent_again_under_its_number(bench: Bench) -> None:
    seen: list[Report] = []

    def stumbling(report: Report) -> Reply:  # SC-641: at least once
        seen.append(report)
        repeats = sum(1 for other in seen if other["n"] == report["n"])
        return (503, {"kind": "Status"}) if repeats == 1 else granting(report)

    bench.server.policy = stumbling
    bench.prepare("/bin/true")
    await bench.run()

    assert await bench.finished() == 0

    numbers = [report["n"] for report in seen]
    assert numbers == [1, 1, 2, 2, 3, 3, 4, 4]
    assert all(
        first["kind"] == second["kind"] and second["ageMs"] > first["ageMs"]
        for first, second in zip(seen[::2], seen[1::2], strict=True)
    )


async def test_an_end_while_the_server_is_away_is_told_when_it_is_back(bench: Bench) -> None:
    go = bench.root / "go"  # SC-643
    script = f"while [ ! -e {go} ]; do sleep 0.02; done; exit 4"
    bench.prepare("/bin/sh", "-c", script, heartbeat=0.02)
    await bench.run()
    await bench.server.wait_for("heartbeat", count=3)

    await bench.server.stop()
    before = len(bench.server.reports)
    go.touch()
    await bench.until((bench.directory / files.EXIT).exists)
    ended = bench.exit_json()
    await bench.server.start()
    exited = await bench.server.wait_for("exited")

    assert await bench.finished() == 0
    assert (ended["exitCode"], exited["exitCode"]) == (4, 4)
    late = [report["kind"] for report in bench.server.reports[before:]]
    assert late in (["heartbeat", "exited"], ["exited"])  # the latest heartbeat only
    numbers = [report["n"] for report in bench.server.reports]
    assert numbers == sorted(numbers)


async def test_a_silent_server_never_ends_the_program(bench: Bench) -> None:  # SC-643
    marker = bench.root / "marker"
    script = f"sleep 0.5; touch {marker}"
    bench.prepare("/bin/sh", "-c", script, heartbeat=0.02)
    await bench.run()
    await bench.server.wait_for("started")

    await bench.server.stop()

    await bench.until((bench.directory / files.EXIT).exists)
    assert marker.exists()
    assert (bench.exit_json()["exitCode"], bench.exit_json().get("stopAgeMs")) == (0, None)


async def test_a_refused_report_is_dropped_and_life_goes_on(bench: Bench) -> None:  # SC-643

    def refusing(report: Report) -> Reply:
        if report["kind"] == "registered":
            return (409, {"kind": "Status", "reason": "Conflict"})
        return granting(report)

    bench.server.policy = refusing
    bench.prepare("/bin/true")
    await bench.run()

    await bench.server.wait_for("exited")
    assert bench.server.kinds() == ["registered", "canStart", "started", "exited"]


async def test_a_program_that_cannot_start_is_reported(bench: Bench) -> None:  # SC-010
    bench.prepare("no-such-program-anywhere")
    await bench.run()

    exited = await bench.server.wait_for("exited")

    assert (exited["error"], exited["exitCode"]) == ("StartFailed", None)
    assert exited["message"] == "command not found: no-such-program-anywhere"
    assert "started" not in bench.server.kinds()


async def test_a_missing_working_directory_is_reported(bench: Bench) -> None:  # SC-010
    bench.prepare("/bin/true", working_directory="/no/such/folder")
    await bench.run()

    exited = await bench.server.wait_for("exited")

    assert exited["message"] == "working directory not found: /no/such/folder"


async def test_a_program_sees_what_it_should_and_no_secret(bench: Bench) -> None:  # SC-143
    bench.prepare(
        "/usr/bin/env",
        environment={"MINE": "1", "NODUS_SLOT": "forged"},
        context={"NODUS_SLOT": "0", "NODUS_EPOCH": "1"},
    )
    await bench.run()
    await bench.server.wait_for("exited")

    lines = (bench.directory / files.STDOUT).read_text().splitlines()
    seen = dict(line.split("=", 1) for line in lines)
    del seen["PATH"]
    assert seen.pop("NODUS_PROGRESS") == str(bench.directory / files.CHANNEL / "progress")
    assert seen == {"MINE": "1", "NODUS_SLOT": "0", "NODUS_EPOCH": "1"}


async def test_output_goes_to_two_files(bench: Bench) -> None:
    bench.prepare("/bin/sh", "-c", "echo out; echo err >&2; pwd")
    await bench.run()
    await bench.server.wait_for("exited")

    work = bench.directory / files.WORK
    assert (bench.directory / files.STDOUT).read_text() == f"out\n{work}\n"
    assert (bench.directory / files.STDERR).read_text() == "err\n"


async def test_the_zipapp_runs_by_itself(bench: Bench) -> None:  # SC-640
    first, second = bench.root / "runner.pyz", bench.root / "again.pyz"
    write_zipapp(first)
    write_zipapp(second)
    bench.prepare("/bin/sh", "-c", "exit 6")

    await bench.run("-I", "-S", str(first))

    assert (await bench.server.wait_for("exited"))["exitCode"] == 6
    assert first.read_bytes() == second.read_bytes()


async def test_reports_go_over_https_with_the_ca_of_the_directory(bench: Bench) -> None:  # SC-645
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(a_certificate(bench.directory / files.CA))
    port = await bench.server.listen_tls(context)
    bench.prepare("/bin/true", report_to=f"https://127.0.0.1:{port}")
    await bench.run()

    await bench.server.wait_for("exited")

    assert bench.server.kinds() == ["registered", "canStart", "started", "exited"]


async def test_a_server_of_another_ca_gets_no_report(bench: Bench) -> None:  # SC-645
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(a_certificate(bench.root / "other.crt"))
    a_certificate(bench.directory / files.CA)
    port = await bench.server.listen_tls(context)
    bench.prepare("/bin/true", report_to=f"https://127.0.0.1:{port}")
    await bench.run()

    log = bench.directory / files.LOG
    await bench.until(lambda: "the report server is away" in log.read_text())

    assert bench.server.reports == []


async def test_a_directory_without_intent_is_refused(bench: Bench) -> None:
    await bench.run()

    assert await bench.finished() == 2
    assert "intent.json is missing" in (bench.directory / files.LOG).read_text()


async def test_an_intent_that_lacks_a_field_is_refused(bench: Bench) -> None:
    intent = bench.directory / files.INTENT
    bench.prepare("/bin/true")
    content = json.loads(intent.read_text())
    del content["attempt"]
    intent.write_text(json.dumps(content))
    await bench.run()

    assert await bench.finished() == 2
    assert "lacks a field" in (bench.directory / files.LOG).read_text()


async def test_a_newer_intent_is_understood(bench: Bench) -> None:
    intent = bench.directory / files.INTENT
    bench.prepare("/bin/true")
    intent.write_text(json.dumps({**json.loads(intent.read_text()), "from": "the future"}))
    await bench.run()

    assert (await bench.server.wait_for("exited"))["exitCode"] == 0


def a_certificate(path: Path) -> Path:
    """Write a self-signed certificate of 127.0.0.1; return the file with it and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "runner test")])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=3650))
        .not_valid_after(now + timedelta(days=36500))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(public)
    both = path.with_suffix(".pem")
    both.write_bytes(public + private)
    return both
