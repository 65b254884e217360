"""Both servers, started once, and what was asked of them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests import programs
from tests.differential import fleet
from tests.differential.kube import kube_apiserver
from tests.differential.pair import Pair, paired


@pytest.fixture(scope="session")
async def pair(open_folder: Path) -> AsyncIterator[Pair]:
    """A real kube-apiserver and ours, with the same objects."""
    found = programs.kube_apiserver()
    if found is None:
        pytest.skip("kube-apiserver could not be had: see tests/programs.py")
    folder = open_folder / "differential"
    folder.mkdir()
    async with kube_apiserver(*found, folder) as kube, paired(kube, folder, fleet.PROJECTS) as both:
        await asyncio.gather(fleet.fill(both), fleet.documented(both))
        yield both
