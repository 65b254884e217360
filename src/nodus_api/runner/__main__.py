"""`python -m nodus_api.runner DIRECTORY`: begins and ends the process, cheaply.

A runner is started for every life, so what it costs to start counts: looking for garbage while
modules load, which make none, and taking them apart at the end were a quarter of it.
"""

import gc
import os
import sys
from importlib import import_module
from typing import NoReturn


def run() -> NoReturn:
    """Be the runner of the directory that the one argument names; ends the process."""
    gc.disable()
    code = import_module("nodus_api.runner.main").main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
