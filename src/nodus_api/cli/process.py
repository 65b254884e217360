"""How `nodus` begins and ends as a process of its own: quickly.

Two things that Python does by itself cost a third of a short command's time, for nothing: looking
for garbage while modules load, which make none, and taking every module apart at the end.
"""

import atexit
import gc
import os
import sys
from collections.abc import Callable
from typing import NoReturn


def as_process(program: Callable[[], object]) -> NoReturn:
    """Run `program` as this process and exit as it says, by SystemExit or by returning."""
    code = 1
    gc.disable()
    _write_anything()

    def leave() -> None:
        _leave(code)

    # the first to be registered is the last to be called, after all that others registered
    atexit.register(leave)
    try:
        program()
        code = 0
    except SystemExit as end:
        code = _code_of(end)
        raise
    sys.exit(code)


def collect_from_now_on() -> None:
    """Look for garbage again, but never in what is there by now: modules stay to the end."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _write_anything() -> None:
    """Let no sign fail that the terminal's encoding lacks, and no stream that was closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started us, as `>&-` does
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 -- to the end
        else:
            stream.reconfigure(errors="backslashreplace")
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 -- as above


def _code_of(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    return 1  # Python prints it before anything that is registered is called


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:  # full, or nobody reads it
            code = code or 1
    os._exit(code)
