"""One stand a module, on a Postgres that nobody else has."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.faults.stand import Stand, standing

from nodus_api.storage.access_store import AccessAdmin
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.migrate import upgrade
from nodus_api.tokens import hash_secret, make_token


@pytest.fixture(scope="module")
def own_postgres(open_folder: Path, request: pytest.FixtureRequest) -> Iterator[EmbeddedPostgres]:
    """A server for the module alone."""
    folder = open_folder / request.module.__name__.rpartition(".")[2]
    server = EmbeddedPostgres(folder, settings={"fsync": "off"})
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
async def stand(own_postgres: EmbeddedPostgres) -> AsyncIterator[Stand]:
    """A migrated Postgres, a server behind a network of ours, and load on it."""
    await upgrade(own_postgres.url)
    token = await an_administrator(own_postgres.url)
    with standing(own_postgres.log_file.parent.parent, token, own_postgres) as made:
        yield made


async def an_administrator(url: str) -> str:
    """Make a token that may read everything."""
    secret = os.urandom(32)
    made = make_token(os.urandom(8), secret)
    database = Database(url, role=Role.SCHEDULER, pool_size=1)
    await AccessAdmin(database).create_token(
        id=made.id, secret_sha256=hash_secret(secret), username="admin", groups=("nodus:admins",)
    )
    await database.close()
    return made.text
