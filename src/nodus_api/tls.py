"""Certificates, made, loaded and reloaded, and the TLS contexts of servers and clients.

The dev bootstrap (AS-078) makes an ECDSA P-256 CA once and a leaf of one year, which
is renewed when a third of its life is left; the CA is kept, so kubeconfigs stay valid.
"""

import hashlib
import ipaddress
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from nodus_api.clock import Clock

LEAF_LIFE = timedelta(days=365)
CA_LIFE = timedelta(days=3650)
RELOAD_SECONDS = 10.0
_SKEW = timedelta(minutes=5)
_SUITES_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20"
_log = logging.getLogger(__name__)


class CertificateError(Exception):
    """Certificates cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """Where a server's certificate, its key and (if we made it) its CA lie."""

    certificate: Path
    key: Path
    ca: Path | None = None


def ensure_certificates(cert_dir: Path, *, names: Sequence[str], clock: Clock) -> CertificateFiles:
    """Return certificates in `cert_dir` good for `names` (AS-078), making what is missing.

    The folder is 0700, keys are 0600. The leaf is made anew when a third of its life is
    left, when a name is missing, or when key or CA do not fit. Raises CertificateError.
    """
    files = CertificateFiles(
        certificate=cert_dir / "server.crt", key=cert_dir / "server.key", ca=cert_dir / "ca.crt"
    )
    now = clock.now()
    try:
        cert_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        cert_dir.chmod(0o700)
        ca, ca_key = _ensure_ca(cert_dir, now)
        if not _leaf_fits(files, ca, names, now):
            _make_leaf(files, ca, ca_key, names, now)
    except OSError as error:
        raise CertificateError(
            f"Certificates cannot be kept in {cert_dir} ({error.strerror});"
            " choose a folder that this user can write."
        ) from error
    return files


def server_context(
    files: CertificateFiles, *, minimum: str = "1.2", client_ca: Path | None = None
) -> ssl.SSLContext:
    """Return the context of an HTTPS server (AS-077): TLS 1.2 or 1.3 up, HTTP/1.1 only.

    With `client_ca`, client certificates are asked for but not demanded.
    Session tickets are off: they cost each handshake two messages and clients of an
    API keep connections. Raises CertificateError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if minimum == "1.3" else ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_SUITES_1_2)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    _load_pair(context, files)
    if client_ca is not None:
        context.load_verify_locations(cafile=client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(ca: Path | None = None, *, ca_data: str | None = None) -> ssl.SSLContext:
    """Return a verifying context of a client that trusts this CA alone, or the system's."""
    context = ssl.create_default_context(cafile=ca, cadata=ca_data)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


class CertificateReloader:
    """Looks at a server's files and loads a changed pair into its context (AS-080).

    New connections get the new pair; no open connection is dropped. A bad pair is
    refused: the old one stays, and `failures` counts it.
    """

    def __init__(self, files: CertificateFiles, context: ssl.SSLContext, clock: Clock) -> None:
        self._files = files
        self._context = context
        self._clock = clock
        self._seen = self._fingerprint()
        served = _read_certificate(files.certificate)
        self._names, self._expires = _names(served), served.not_valid_after_utc
        self._running = False
        self.reloads = 0
        self.failures = 0

    def check(self) -> bool:
        """Load the files if they changed and fit together; return whether they were loaded."""
        now_seen = self._fingerprint()
        if now_seen == self._seen:
            return False
        self._seen = now_seen
        try:
            found = self._validated()
            _load_pair(self._context, self._files)
        except CertificateError as error:
            self.failures += 1
            _log.error(
                "The changed certificate cannot be used; the old one stays",
                extra={"problem": str(error)},
            )
            return False
        names = _names(found)
        if not self._names <= names:
            _log.warning(
                "The new certificate lacks names of the old one",
                extra={"missing": sorted(self._names - names)},
            )
        self._names, self._expires = names, found.not_valid_after_utc
        self.reloads += 1
        _log.info("A changed certificate was loaded", extra={"names": sorted(names)})
        return True

    def problem(self) -> str | None:
        """Return what is wrong with the certificate that is served, or None."""
        if self._expires <= self._clock.now():
            return f"the certificate expired at {self._expires:%Y-%m-%dT%H:%M:%SZ}"
        return None

    def stalled(self) -> str | None:
        """Return that nobody looks at the files any more, or None (AS-105)."""
        return None if self._running else "the certificate's files are no longer looked at"

    async def run(self, before: Callable[[], Awaitable[None]] | None = None) -> None:
        """Check every 10 seconds, for ever; `before` may renew the files first."""
        self._running = True
        try:
            while True:
                await self._clock.sleep(RELOAD_SECONDS)
                try:
                    if before is not None:
                        await before()
                except CertificateError as error:
                    self.failures += 1
                    _log.error("A certificate cannot be renewed", extra={"problem": str(error)})
                self.check()
        finally:
            self._running = False

    def _validated(self) -> x509.Certificate:
        _load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._files)
        certificate = _read_certificate(self._files.certificate)
        if certificate.not_valid_after_utc <= self._clock.now():
            raise CertificateError(f"{self._files.certificate} has expired.")
        return certificate

    def _fingerprint(self) -> tuple[object, ...]:
        return tuple(_file_state(path) for path in (self._files.certificate, self._files.key))


def _file_state(path: Path) -> tuple[object, ...]:
    # Kubernetes swaps a symlink: inode and content tell, the time of the link does not
    try:
        stat = path.stat()
        return stat.st_mtime_ns, stat.st_ino, hashlib.sha256(path.read_bytes()).digest()
    except OSError as error:
        return (error.errno,)


def _load_pair(context: ssl.SSLContext, files: CertificateFiles) -> None:
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise CertificateError(
            f"{files.certificate} and {files.key} cannot be used together"
            f" ({getattr(error, 'reason', None) or error});"
            " give a PEM certificate chain and its private key."
        ) from error


def _ensure_ca(
    cert_dir: Path, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate_path, key_path = cert_dir / "ca.crt", cert_dir / "ca.key"
    if certificate_path.exists() and key_path.exists():
        certificate = _read_certificate(certificate_path)
        key = _read_key(key_path)
        if certificate.not_valid_after_utc <= now:
            raise CertificateError(
                f"The CA in {certificate_path} has expired; remove it and {key_path} to have"
                " a new one made, and give out kubeconfigs again."
            )
        if certificate.public_key() != key.public_key():
            raise CertificateError(
                f"{key_path} is not the key of {certificate_path}; put the right key back,"
                " or remove both to have a new CA made."
            )
        return certificate, key
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nodus-ca")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_key(key_path, key)
    _write(certificate_path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return certificate, key


def _make_leaf(
    files: CertificateFiles,
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    names: Sequence[str],
    now: datetime,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nodus-api")]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(min(now + LEAF_LIFE, ca.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName(_general_names(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    _write_key(files.key, key)
    _write(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _leaf_fits(
    files: CertificateFiles, ca: x509.Certificate, names: Sequence[str], now: datetime
) -> bool:
    if not (files.certificate.exists() and files.key.exists()):
        return False
    try:
        leaf, key = _read_certificate(files.certificate), _read_key(files.key)
        leaf.verify_directly_issued_by(ca)
    except (CertificateError, InvalidSignature, ValueError, TypeError):
        return False  # damaged, or of another CA
    life = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    return (
        leaf.public_key() == key.public_key()
        and leaf.not_valid_after_utc - now > life / 3
        and set(names) <= _names(leaf)
    )


def _general_names(names: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {
        *found.get_values_for_type(x509.DNSName),
        *(str(address) for address in found.get_values_for_type(x509.IPAddress)),
    }


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CertificateError(
            f"{path} is not a readable PEM certificate; put the right file back,"
            " or remove it to have a new one made."
        ) from error


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise CertificateError(
            f"{path} is not a readable PEM key; put the right file back,"
            " or remove it to have a new one made."
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{path} is not an ECDSA key; remove it to have a new one made.")
    return key


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(path, pem, 0o600)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replace a file in one step, so that no reader sees half of it."""
    part = path.with_name(path.name + ".new")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.chmod(mode)
    part.replace(path)
