"""The real etcd and kube-apiserver, on loopback and in a folder of their own."""

import asyncio
import json
import signal
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.apiserver.conftest import ADMIN, ALICE

from nodus_api.clock import SystemClock
from nodus_api.tls import client_context, ensure_certificates

_PATIENCE = 180.0
_USERS = ((ADMIN.text, "admin", "system:masters"), (ALICE.text, "alice", "people"))
"""The users of tests/apiserver, with the same tokens."""


@dataclass(frozen=True, slots=True)
class Kube:
    """A kube-apiserver that is ready, and the etcd behind it."""

    port: int
    context: ssl.SSLContext
    http: httpx.AsyncClient
    etcd: str

    async def write(self, method: str, path: str, body: Any = None) -> Any:
        """Send what must succeed, and return the answer."""
        content = None if body is None else json.dumps(body).encode()
        got = await self.http.request(
            method, path, content=content, headers={"Content-Type": "application/json"}
        )
        assert got.status_code in (200, 201), got.text
        return got.json()

    async def compact(self, revision: int) -> None:
        """Let etcd forget all that was before a revision."""
        async with httpx.AsyncClient(timeout=_PATIENCE) as http:
            got = await http.post(
                f"{self.etcd}/v3/kv/compaction", json={"revision": str(revision), "physical": True}
            )
        assert got.status_code == 200, got.text


@asynccontextmanager
async def kube_apiserver(etcd: Path, program: Path, folder: Path) -> AsyncIterator[Kube]:
    """Run both programs until the end of the block."""
    files = ensure_certificates(
        folder / "certificates", names=["localhost", "127.0.0.1"], clock=SystemClock()
    )
    assert files.ca is not None
    keys = _service_account_keys(folder)
    tokens = folder / "tokens.csv"
    tokens.write_text("".join(f'{text},{user},{user},"{group}"\n' for text, user, group in _USERS))
    port, etcd_port, peer_port = _free_ports(3)
    endpoint = f"http://127.0.0.1:{etcd_port}"
    with ExitStack() as running:
        running.enter_context(
            _process(folder / "etcd.log", etcd, _etcd_flags(folder, endpoint, peer_port))
        )
        flags = {
            "etcd-servers": endpoint,
            "bind-address": "127.0.0.1",
            "secure-port": str(port),
            "advertise-address": "10.0.0.1",  # nobody dials it
            "endpoint-reconciler-type": "none",
            "tls-cert-file": str(files.certificate),
            "tls-private-key-file": str(files.key),
            "cert-dir": str(folder),
            "token-auth-file": str(tokens),
            "anonymous-auth": "false",
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": "10.96.0.0/24",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(keys[1]),
            "service-account-signing-key-file": str(keys[0]),
            "disable-admission-plugins": "ServiceAccount",
            "feature-gates": "ShardedListAndWatch=true",
        }
        server = running.enter_context(_process(folder / "kube.log", program, flags))
        context = client_context(files.ca)
        async with httpx.AsyncClient(
            base_url=f"https://localhost:{port}",
            verify=context,
            timeout=_PATIENCE,
            headers={"Authorization": f"Bearer {ADMIN.text}"},
        ) as http:
            await _ready(http, server, folder / "kube.log")
            yield Kube(port=port, context=context, http=http, etcd=endpoint)


def _etcd_flags(folder: Path, endpoint: str, peer_port: int) -> Mapping[str, str]:
    peer = f"http://127.0.0.1:{peer_port}"
    return {
        "data-dir": str(folder / "etcd"),
        "listen-client-urls": endpoint,
        "advertise-client-urls": endpoint,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }


@contextmanager
def _process(
    log: Path, program: Path, flags: Mapping[str, str]
) -> "Iterator[subprocess.Popen[bytes]]":
    command = [str(program), *(f"--{name}={value}" for name, value in flags.items())]
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 -- ours
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _ready(http: httpx.AsyncClient, server: "subprocess.Popen[bytes]", log: Path) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + _PATIENCE
    while True:
        if server.poll() is not None or clock.monotonic() > deadline:
            said = await asyncio.to_thread(log.read_text)
            raise AssertionError(f"kube-apiserver is not ready: {said[-2000:]}")
        try:
            if (await http.get("/readyz")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.1)


def _service_account_keys(folder: Path) -> Sequence[Path]:
    """Make the pair of keys without which kube-apiserver does not start."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = folder / "sa.key", folder / "sa.pub"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return private, public


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        found = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]
