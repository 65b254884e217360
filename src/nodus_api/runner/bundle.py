"""The runner as one file: a zipapp that any Python 3.11 or newer runs (SC-640)."""

import zipfile
from pathlib import Path

_PACKAGE = Path(__file__).parent
_START = "from nodus_api.runner.__main__ import run\nrun()\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_zipapp(target: Path) -> None:
    """Write the zipapp: `python TARGET DIRECTORY` runs it. The same sources give the same bytes."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", _START)
        _add(archive, "nodus_api/__init__.py", "")
        for source in sorted(_PACKAGE.glob("*.py")):
            _add(archive, f"nodus_api/runner/{source.name}", source.read_text(encoding="utf-8"))


def _add(archive: zipfile.ZipFile, name: str, text: str) -> None:
    # Not `zipapp.create_archive`: it stamps the present time, and equal builds would differ.
    entry = zipfile.ZipInfo(name, date_time=_EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, text)
