"""What the first start of `nodus up` makes: certificates, admin token, kubeconfig (AS-066)."""

import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

from nodus_api.cli import kubeconfig
from nodus_api.cli.data_directory import DataDirectory
from nodus_api.clock import Clock
from nodus_api.storage.access_store import AccessAdmin
from nodus_api.storage.engine import Database, Role
from nodus_api.tls import CertificateFiles, ensure_certificates
from nodus_api.tokens import ID_BYTES, SECRET_BYTES, make_token, parse_token

ADMIN_USER = "admin"
ADMIN_GROUP = "nodus:admins"


def certificate_names(bind: str, extra: Sequence[str]) -> list[str]:
    """Return the names a dev certificate is good for (AS-078)."""
    names = ["localhost", "127.0.0.1", "::1", socket.gethostname()]
    if bind not in ("0.0.0.0", "::", *names):  # noqa: S104 -- compared, not bound
        names.append(bind)
    return [*names, *extra]


def make_certificates(
    directory: DataDirectory, *, bind: str, extra: Sequence[str], clock: Clock
) -> CertificateFiles:
    """Make what is missing in D/certs, and give the CA out as D/ca.crt."""
    files = ensure_certificates(directory.certs, names=certificate_names(bind, extra), clock=clock)
    if files.ca is not None:
        _give_out(files.ca, directory.ca)
    return files


async def ensure_admin(directory: DataDirectory, url: str) -> None:
    """Keep D/token a token of user admin that the database knows; make one otherwise.

    The database may be newer than the file, so the file alone proves nothing.
    """
    database = Database(url, role=Role.SCHEDULER, pool_size=1)
    try:
        admin = AccessAdmin(database)
        known = parse_token(_text(directory.token))
        if known is not None:
            live = [one.id for one in await admin.list_tokens() if one.revoked is None]
            if known[0] in live:
                return
        made = make_token(secrets.token_bytes(ID_BYTES), secrets.token_bytes(SECRET_BYTES))
        await admin.create_token(
            id=made.id,
            secret_sha256=made.secret_sha256,
            username=ADMIN_USER,
            groups=(ADMIN_GROUP,),
            expires=None,
        )
    finally:
        await database.close()
    directory.write_private(directory.token, made.text + "\n")


def write_kubeconfig(directory: DataDirectory, server: str) -> None:
    """Write D/kubeconfig, 0600, with the context's namespace `default`."""
    text = kubeconfig.render(
        server=server,
        ca=directory.ca.read_text(),
        token=_text(directory.token),
        project="default",
        user=ADMIN_USER,
    )
    directory.write_private(directory.kubeconfig, text)


def _give_out(source: Path, target: Path) -> None:
    if not target.exists() or target.read_bytes() != source.read_bytes():
        part = target.with_name(f".{target.name}.new")
        part.write_bytes(source.read_bytes())
        part.chmod(0o644)
        part.replace(target)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""
