"""Certificates that are made, renewed and reloaded; TLS contexts on real sockets."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from nodus_api.clock import ManualClock, SystemClock
from nodus_api.tasks import end, spawn
from nodus_api.tls import (
    CertificateError,
    CertificateFiles,
    CertificateReloader,
    client_context,
    ensure_certificates,
    server_context,
)

NAMES = ("localhost", "127.0.0.1", "::1", "node.example")
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def made(folder: Path) -> CertificateFiles:
    return ensure_certificates(folder / "certs", names=NAMES, clock=SystemClock())


def test_the_bootstrap_makes_a_ca_and_a_leaf(tmp_path: Path) -> None:  # AS-078
    files = ensure_certificates(tmp_path / "certs", names=NAMES, clock=ManualClock(START))
    assert files.ca is not None
    ca, leaf = certificate(files.ca), certificate(files.certificate)

    leaf.verify_directly_issued_by(ca)
    key = leaf.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert leaf.not_valid_after_utc - START == timedelta(days=365)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "node.example"]
    addresses = names.get_values_for_type(x509.IPAddress)
    assert [str(address) for address in addresses] == ["127.0.0.1", "::1"]
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is True


def test_the_folder_and_the_keys_are_private(tmp_path: Path) -> None:  # AS-078
    files = made(tmp_path)

    assert files.key.parent.stat().st_mode & 0o777 == 0o700
    assert files.key.stat().st_mode & 0o777 == 0o600
    assert (files.key.parent / "ca.key").stat().st_mode & 0o777 == 0o600


def test_a_good_leaf_is_kept(tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in made(tmp_path).key.parent.iterdir()}
    files = made(tmp_path)

    assert {path: path.read_bytes() for path in files.key.parent.iterdir()} == before


async def test_the_leaf_is_renewed_when_a_third_of_its_life_is_left_and_the_ca_is_kept(
    tmp_path: Path,
) -> None:  # AS-078
    clock = ManualClock(START)
    files = ensure_certificates(tmp_path, names=NAMES, clock=clock)
    assert files.ca is not None
    ca, leaf = files.ca.read_bytes(), files.certificate.read_bytes()

    await clock.advance(timedelta(days=240).total_seconds())
    ensure_certificates(tmp_path, names=NAMES, clock=clock)
    assert files.certificate.read_bytes() == leaf

    await clock.advance(timedelta(days=5).total_seconds())
    ensure_certificates(tmp_path, names=NAMES, clock=clock)
    assert files.certificate.read_bytes() != leaf
    assert files.ca.read_bytes() == ca
    assert certificate(files.certificate).not_valid_after_utc == START + timedelta(days=245 + 365)


def test_a_new_name_makes_a_new_leaf(tmp_path: Path) -> None:
    files = made(tmp_path)
    ensure_certificates(files.key.parent, names=[*NAMES, "more.example"], clock=SystemClock())

    names = certificate(files.certificate).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert "more.example" in names.value.get_values_for_type(x509.DNSName)


def test_a_leaf_of_another_ca_and_a_damaged_leaf_are_replaced(tmp_path: Path) -> None:
    one, other = made(tmp_path / "one"), made(tmp_path / "other")
    for name in ("server.crt", "server.key"):
        (one.key.parent / name).write_bytes((other.key.parent / name).read_bytes())
    made(tmp_path / "one")
    assert one.ca is not None
    certificate(one.certificate).verify_directly_issued_by(certificate(one.ca))

    one.certificate.write_text("damaged")
    made(tmp_path / "one")
    certificate(one.certificate).verify_directly_issued_by(certificate(one.ca))


async def test_an_expired_ca_says_what_to_do(tmp_path: Path) -> None:
    clock = ManualClock(START)
    ensure_certificates(tmp_path, names=NAMES, clock=clock)
    await clock.advance(timedelta(days=3651).total_seconds())

    with pytest.raises(CertificateError, match="has expired; remove it and"):
        ensure_certificates(tmp_path, names=NAMES, clock=clock)


def test_the_key_of_another_ca_says_what_to_do(tmp_path: Path) -> None:
    one, other = made(tmp_path / "one"), made(tmp_path / "other")
    (one.key.parent / "ca.key").write_bytes((other.key.parent / "ca.key").read_bytes())

    with pytest.raises(CertificateError, match="put the right key back"):
        made(tmp_path / "one")
    (one.key.parent / "ca.key").write_text("damaged")
    with pytest.raises(CertificateError, match="is not a readable PEM key"):
        made(tmp_path / "one")
    (one.key.parent / "ca.crt").write_text("damaged")
    with pytest.raises(CertificateError, match="is not a readable PEM certificate"):
        made(tmp_path / "one")


def test_a_folder_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "certs").write_text("a file in the way")

    with pytest.raises(CertificateError, match="choose a folder that this user can write"):
        made(tmp_path)


@asynccontextmanager
async def serving(context: ssl.SSLContext) -> AsyncIterator[int]:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def handshake(port: int, context: ssl.SSLContext) -> tuple[str | None, str | None, bytes]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost"
    )
    tls = writer.get_extra_info("ssl_object")
    found = (tls.version(), tls.selected_alpn_protocol(), tls.getpeercert(binary_form=True))
    writer.close()
    await writer.wait_closed()
    del reader
    return found


async def test_a_client_that_trusts_the_ca_speaks_http_1_1_over_tls_1_3(tmp_path: Path) -> None:
    files = made(tmp_path)  # AS-077
    async with serving(server_context(files)) as port:
        version, alpn, _ = await handshake(port, client_context(files.ca))

    assert (version, alpn) == ("TLSv1.3", "http/1.1")


async def test_tls_1_2_is_served_unless_1_3_is_the_minimum(tmp_path: Path) -> None:  # AS-077
    files = made(tmp_path)
    old = client_context(files.ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serving(server_context(files)) as port:
        version, _, _ = await handshake(port, old)
    assert version == "TLSv1.2"

    async with serving(server_context(files, minimum="1.3")) as port:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await handshake(port, old)


def test_the_server_context_is_strict(tmp_path: Path) -> None:  # AS-077
    context = server_context(made(tmp_path))

    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.num_tickets == 0
    wanted = ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    assert context.options & wanted == wanted
    old = [one["name"] for one in context.get_ciphers() if one["protocol"] == "TLSv1.2"]
    assert all(name.startswith("ECDHE") for name in old)
    assert all("GCM" in name or "CHACHA20" in name for name in old)


async def test_a_client_with_another_ca_refuses(tmp_path: Path) -> None:
    files, other = made(tmp_path / "one"), made(tmp_path / "other")
    async with serving(server_context(files)) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await handshake(port, client_context(other.ca))


async def test_a_client_certificate_may_be_asked_for(tmp_path: Path) -> None:
    files = made(tmp_path)

    context = server_context(files, client_ca=files.ca)
    assert context.verify_mode is ssl.CERT_OPTIONAL


def test_a_pair_that_does_not_fit_is_refused(tmp_path: Path) -> None:  # AS-080
    one, other = made(tmp_path / "one"), made(tmp_path / "other")

    with pytest.raises(CertificateError, match="cannot be used together"):
        server_context(CertificateFiles(certificate=one.certificate, key=other.key))
    with pytest.raises(CertificateError, match="cannot be used together"):
        server_context(CertificateFiles(certificate=tmp_path / "missing", key=other.key))


async def test_a_changed_pair_is_served_to_new_connections(tmp_path: Path) -> None:  # AS-080
    files = made(tmp_path)
    context = server_context(files)
    reloader = CertificateReloader(files, context, SystemClock())
    assert reloader.check() is False

    async with serving(context) as port:
        _, _, before = await handshake(port, client_context(files.ca))
        files.certificate.unlink()
        made(tmp_path)
        assert reloader.check() is True
        _, _, after = await handshake(port, client_context(files.ca))

    assert before != after
    assert (reloader.reloads, reloader.failures) == (1, 0)


def test_a_bad_pair_keeps_the_old_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # AS-080
    files = made(tmp_path)
    reloader = CertificateReloader(files, server_context(files), SystemClock())

    files.certificate.write_text("half a fi")
    assert reloader.check() is False
    files.certificate.unlink()
    assert reloader.check() is False
    assert reloader.check() is False
    assert (reloader.reloads, reloader.failures) == (0, 2)
    assert "the old one stays" in caplog.text


class Swapped(CertificateReloader):
    """Whose files change again between the look and the load."""

    def _validated(self) -> x509.Certificate:
        found = super()._validated()
        self._files.key.write_text("half a fi")
        return found


async def test_a_pair_that_changes_while_it_is_loaded_is_refused(tmp_path: Path) -> None:  # AS-080
    files = made(tmp_path)
    reloader = Swapped(files, server_context(files), SystemClock())
    files.certificate.unlink()
    made(tmp_path)

    assert reloader.check() is False
    assert (reloader.reloads, reloader.failures) == (0, 1)
    made(tmp_path)  # the next look finds a good one
    files.certificate.touch()
    assert CertificateReloader.check(reloader) is False  # swapped again
    assert reloader.failures == 2


async def test_an_expired_pair_is_refused(tmp_path: Path) -> None:  # AS-080
    clock = ManualClock(START)
    files = ensure_certificates(tmp_path, names=NAMES, clock=clock)
    reloader = CertificateReloader(files, server_context(files), clock)
    assert reloader.problem() is None
    await clock.advance(timedelta(days=366).total_seconds())
    os.utime(files.certificate, ns=(0, 0))

    assert reloader.check() is False
    assert reloader.failures == 1
    assert reloader.problem() == "the certificate expired at 2027-03-01T12:00:00Z"


def test_a_pair_with_fewer_names_is_loaded_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # AS-080
    files = made(tmp_path)
    reloader = CertificateReloader(files, server_context(files), SystemClock())
    files.certificate.unlink()
    ensure_certificates(files.key.parent, names=["localhost"], clock=SystemClock())

    assert reloader.check() is True
    assert "lacks names of the old one" in caplog.text


async def test_the_reloader_looks_every_ten_seconds(tmp_path: Path) -> None:  # AS-080
    clock = ManualClock(datetime.fromisoformat("2026-03-01T12:00:00Z"))
    files = ensure_certificates(tmp_path, names=NAMES, clock=clock)
    reloader = CertificateReloader(files, server_context(files), clock)
    renewals = 0

    async def renew() -> None:
        nonlocal renewals
        renewals += 1
        files.certificate.unlink()
        ensure_certificates(tmp_path, names=NAMES, clock=clock)

    assert reloader.stalled() is not None
    task = spawn("reload", reloader.run(renew))
    await asyncio.sleep(0)
    assert reloader.stalled() is None  # AS-105
    await clock.advance(9.9)
    assert (renewals, reloader.reloads) == (0, 0)
    await clock.advance(0.2)
    await asyncio.sleep(0)
    assert (renewals, reloader.reloads) == (1, 1)
    await end(task)
    assert reloader.stalled() == "the certificate's files are no longer looked at"


async def test_a_failed_renewal_is_counted_and_the_old_pair_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(START)
    files = ensure_certificates(tmp_path, names=NAMES, clock=clock)
    reloader = CertificateReloader(files, server_context(files), clock)

    async def renew() -> None:
        raise CertificateError("the disk is full")

    task = spawn("reload", reloader.run(renew))
    await asyncio.sleep(0)
    await clock.advance(10.1)
    await asyncio.sleep(0)
    assert (reloader.failures, reloader.reloads, task.done()) == (1, 0, False)
    assert "cannot be renewed" in caplog.text
    await end(task)
