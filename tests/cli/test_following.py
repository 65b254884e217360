"""Following Attempts over a real TLS connection to a server that misbehaves by script."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodus_api.cli import kubeconfig
from nodus_api.cli.api_client import ApiClient, ApiRefusal, ApiUnreachable
from nodus_api.cli.errors import Failed, Refused
from nodus_api.cli.following import Follower
from nodus_api.clock import SystemClock
from nodus_api.tasks import end, spawn
from nodus_api.tls import ensure_certificates, server_context

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def attempt(name: str, version: int, phase: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "resourceVersion": str(version)},
        "status": {"phase": phase, "timings": {}, **status},
    }


def whole(body: object, status: int = 200) -> Answer:
    """Answer with one JSON body."""

    async def send(writer: asyncio.StreamWriter) -> None:
        data = json.dumps(body).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(data)) + data)

    return send


def listed(version: int, *items: dict[str, Any]) -> Answer:
    return whole({"metadata": {"resourceVersion": str(version)}, "items": list(items)})


def stream(*events: tuple[str, dict[str, Any]], cut: bool = False) -> Answer:
    """Answer with a watch, each event in two chunks; `cut` breaks the connection off."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for kind, one in events:
            line = json.dumps({"type": kind, "object": one}).encode() + b"\n"
            for piece in (line[:10], line[10:]):
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if not cut:
            writer.write(b"0\r\n\r\n")

    return send


class Script:
    """Gives the answers in order, and keeps what was asked."""

    def __init__(self, answers: list[Answer]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.headers: list[str] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target, _, rest = head.partition("\r\n")
        self.asked.append(target.split(" ")[1])
        self.headers.append(rest)
        if self.answers:
            await self.answers.pop(0)(writer)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def scripted(folder: Path, *answers: Answer) -> AsyncIterator[tuple[Script, ApiClient]]:
    files = ensure_certificates(folder, names=["localhost"], clock=SystemClock())
    script = Script(list(answers))
    server = await asyncio.start_server(
        script.handle, "localhost", 0, ssl=server_context(files), family=2
    )
    async with server:
        assert files.ca is not None
        config = folder / "kubeconfig"
        config.write_text(
            kubeconfig.render(
                server=f"https://localhost:{server.sockets[0].getsockname()[1]}",
                ca=files.ca.read_text(),
                token="word",  # noqa: S106 -- nobody's
                project="default",
            )
        )
        yield script, ApiClient.from_kubeconfig(config)


async def follow(
    client: ApiClient, until: Callable[[Follower], bool]
) -> tuple[Follower, list[tuple[str, str]]]:
    """Follow until the condition holds or the follower gives up."""
    seen: list[tuple[str, str]] = []
    clock = SystemClock()
    follower = Follower(
        client,
        project="default",
        selector="nodus.dev/job=a",
        clock=clock,
        changed=lambda one: seen.append((one["metadata"]["name"], one["status"]["phase"])),
    )
    task = spawn("follow", follower.run())
    try:
        async with asyncio.timeout(20):
            while not task.done() and not until(follower):
                await clock.sleep(0.01)
    finally:
        await end(task)
    return follower, seen


def at_version(version: str) -> Callable[[Follower], bool]:
    return lambda follower: follower.board.version == version


async def test_a_broken_watch_goes_on_from_the_last_version(tmp_path: Path) -> None:  # SC-801
    async with scripted(
        tmp_path,
        listed(10, attempt("a-0", 9, "Queued")),
        stream(("MODIFIED", attempt("a-0", 11, "Running")), cut=True),
        stream(
            ("BOOKMARK", attempt("", 15, "")),
            ("MODIFIED", attempt("a-0", 16, "Succeeded")),
        ),
        stream(("DELETED", attempt("a-0", 17, "Succeeded"))),
    ) as (script, client):
        follower, seen = await follow(client, at_version("17"))

    assert seen == [("a-0", "Queued"), ("a-0", "Running"), ("a-0", "Succeeded")]
    versions = [one.partition("resourceVersion=")[2].partition("&")[0] for one in script.asked[:4]]
    assert versions == ["", "10", "11", "16"]
    assert all("labelSelector=nodus.dev%2Fjob%3Da" in one for one in script.asked)
    assert "Authorization: Bearer word" in script.headers[0]
    assert follower.board.attempts == {}
    assert follower.board.reconnects >= 1


@pytest.mark.parametrize("in_stream", [False, True])
async def test_an_expired_version_means_a_new_list(tmp_path: Path, in_stream: bool) -> None:
    gone = {"kind": "Status", "code": 410, "message": "too old resource version: 10 (12)"}
    async with scripted(
        tmp_path,
        listed(10, attempt("a-0", 9, "Queued"), attempt("a-1", 9, "Queued")),
        stream(("ERROR", gone)) if in_stream else whole(gone, 410),
        listed(20, attempt("a-0", 19, "Running")),
        stream(("MODIFIED", attempt("a-0", 21, "Succeeded"))),
    ) as (_, client):
        follower, seen = await follow(client, at_version("21"))

    assert seen == [
        ("a-0", "Queued"),
        ("a-1", "Queued"),
        ("a-0", "Running"),
        ("a-0", "Succeeded"),
    ]
    assert list(follower.board.attempts) == ["a-0"]


async def test_a_refusal_ends_with_what_to_do(tmp_path: Path) -> None:
    status = {"kind": "Status", "code": 403, "message": "attempts is forbidden"}
    async with scripted(tmp_path, whole(status, 403)) as (_, client):
        with pytest.raises(Failed, match=r"attempts is forbidden .HTTP 403.; give the kubeconfig"):
            await follow(client, at_version("never"))


async def test_busy_servers_are_asked_again(tmp_path: Path) -> None:
    status = {"kind": "Status", "code": 429, "message": "the cache is warming"}
    async with scripted(
        tmp_path, whole(status, 429), listed(3), stream(("ADDED", attempt("a-0", 4, "Queued")))
    ) as (_, client):
        _, seen = await follow(client, at_version("4"))

    assert seen == [("a-0", "Queued")]


async def test_a_server_that_is_away_is_unreachable(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (_, client):
        pass
    with pytest.raises(ApiUnreachable, match="cannot be reached"):
        await client.get("/readyz")


async def test_an_answer_that_breaks_off_is_unreachable(tmp_path: Path) -> None:
    async def half(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

    async with scripted(tmp_path, half) as (_, client):
        with pytest.raises(ApiUnreachable, match="went away"):
            await client.get("/x")


async def test_a_body_without_length_ends_with_the_connection(tmp_path: Path) -> None:
    async def plain(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 X\r\n\r\nno Status at all")

    async with scripted(tmp_path, plain) as (_, client):
        with pytest.raises(ApiRefusal, match=r"no Status at all \(HTTP 500\)"):
            await client.get_json("/x")


def test_an_unusable_kubeconfig_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="There is no kubeconfig"):
        ApiClient.from_kubeconfig(tmp_path / "missing")
    for text in ("", "{", "a: b", yaml.safe_dump({"current-context": "x", "contexts": []})):
        (tmp_path / "config").write_text(text)
        with pytest.raises(Refused, match="cannot be used as a kubeconfig"):
            ApiClient.from_kubeconfig(tmp_path / "config")
