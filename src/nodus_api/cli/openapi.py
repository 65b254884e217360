"""`nodus openapi`: the published OpenAPI documents, written or compared."""

from pathlib import Path

import click

from nodus_api.attempts.openapi import openapi_v2, openapi_v3
from nodus_api.cli.errors import Failed, Refused
from nodus_api.metav1.core_openapi import core_openapi_v3


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail if a file is not up to date.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("openapi"),
    show_default=True,
    help="Where the documents lie.",
)
def openapi(check: bool, directory: Path) -> None:
    """Write the OpenAPI documents that the server publishes.

    \b
    Example:
      nodus openapi
      nodus openapi --check
    """
    stale = []
    try:
        for name, content in documents().items():
            path = directory / name
            if check:
                if not path.exists() or path.read_bytes() != content:
                    stale.append(str(path))
            else:
                directory.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                click.echo(f"{path} is written.")
    except OSError as error:
        raise Refused(
            f"{directory} cannot be used ({error.strerror}): give another with --directory."
        ) from error
    if stale:
        raise Failed(f"{', '.join(stale)}: not what the server publishes; run `nodus openapi`.")


def documents() -> dict[str, bytes]:
    """Return the documents by file name, in the form that is committed."""
    return {
        "v3.json": openapi_v3().committed(),
        "v3-core.json": core_openapi_v3().committed(),
        "v2.json": openapi_v2().committed(),
    }
