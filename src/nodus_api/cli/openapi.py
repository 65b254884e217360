"""`nodus openapi`: the published OpenAPI documents, written or compared."""

import json
from pathlib import Path
from typing import Any

import click

from nodus_api.cli.errors import Failed, Refused


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
        for name, document in documents().items():
            path, text = directory / name, _text(document)
            if check:
                if not path.exists() or path.read_text() != text:
                    stale.append(str(path))
            else:
                directory.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                click.echo(f"{path} is written.")
    except OSError as error:
        raise Refused(
            f"{directory} cannot be used ({error.strerror}): give another with --directory."
        ) from error
    if stale:
        raise Failed(f"{', '.join(stale)}: not what the server publishes; run `nodus openapi`.")


def documents() -> dict[str, Any]:
    """Return the documents by file name."""
    raise NotImplementedError


def _text(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
