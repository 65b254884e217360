"""`nodus kubeconfig`: what kubectl needs to reach this server (AS-074)."""

import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import click
import yaml

from nodus_api.cli.data_directory import DataDirectory
from nodus_api.cli.errors import Refused
from nodus_api.cli.options import PROJECT_NAME, data_dir_option, settings_from
from nodus_api.tokens import parse_token


def render(*, server: str, ca: str, token: str, project: str, user: str = "nodus") -> str:
    """Return a v1 Config of one cluster, one user with a token, and one context."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "nodus",
                "cluster": {
                    "server": server,
                    "certificate-authority-data": b64encode(ca.encode()).decode(),
                },
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [
            {
                "name": "nodus",
                "context": {"cluster": "nodus", "user": user, "namespace": project},
            }
        ],
        "current-context": "nodus",
    }
    return yaml.safe_dump(config, sort_keys=False)


_SERVER = re.compile(r"https://[^\s/?#]+(/[^\s?#]*)?")


@click.command()
@click.option("--server", required=True, metavar="URL", help="Address, as clients reach it.")
@click.option(
    "-n", "--project", default="default", show_default=True, help="Namespace of the context."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the user's token [the admin's, D/token].",
)
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="CA of the server's certificate [D/ca.crt, else D/certs/ca.crt of `nodus serve`].",
)
@data_dir_option
def kubeconfig(
    server: str, project: str, token_file: Path | None, ca_file: Path | None, **options: Any
) -> None:
    """Print a kubeconfig for a user of this server.

    \b
    Example:
      umask 077
      nodus token create --user ann > ann.token
      nodus kubeconfig --server https://nodus.example:8443 --token-file ann.token > ann.kubeconfig
    """
    directory = DataDirectory(settings_from(options).data_dir)
    if not _SERVER.fullmatch(server):
        raise Refused(f"--server {server!r} must be an https:// URL.")
    if not PROJECT_NAME.fullmatch(project):
        raise Refused(f"{project!r} cannot name a project: `nodus project list` shows them.")
    click.echo(
        render(
            server=server.rstrip("/"),
            ca=_read(ca_file or _made_ca(directory), "--ca-file"),
            token=_token(token_file or directory.token),
            project=project,
        ),
        nl=False,
    )


def _made_ca(directory: DataDirectory) -> Path:
    """Return the CA that `nodus up` hands out, else the one that `nodus serve` made."""
    of_serve = directory.certs / "ca.crt"
    return of_serve if of_serve.exists() and not directory.ca.exists() else directory.ca


def _token(path: Path) -> str:
    """Return the token in a file; refuse what this server could not take for one."""
    text = _read(path, "--token-file").strip()
    if parse_token(text) is None:
        raise Refused(
            f"{path} holds no token of this server: give what"
            " `nodus token create --user NAME > FILE` wrote."
        )
    return text


def _read(path: Path, flag: str) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        raise Refused(f"{path} cannot be read ({reason}): give a readable file with {flag}.") from (
            error
        )
