"""How `nodus migrate` brings a database to head: lock, roles, schema, then the revisions.

The connection comes from `nodus_api.storage.migrate`. The order is a contract (storage.md section
5): everything before `context.configure` is committed there, because Alembic takes an open
transaction for somebody else's, and then `upgrade head` shows no error and writes nothing.
"""

import sqlalchemy as sa
from alembic import context

from nodus_api.storage.errors import MigrationRefused
from nodus_api.storage.migrate import LOCK_KEY, PARTS, membership_word

_MAKE_ROLE = {
    "nodus_migrate": sa.text("CREATE ROLE nodus_migrate LOGIN"),
    "nodus_api": sa.text("CREATE ROLE nodus_api LOGIN"),
    "nodus_scheduler": sa.text("CREATE ROLE nodus_scheduler LOGIN NOINHERIT"),
}
_GRANT_TO_LOGIN = {
    "nodus_migrate": sa.text("GRANT nodus_migrate TO SESSION_USER"),
    "nodus_api": sa.text("GRANT nodus_api TO SESSION_USER"),
    "nodus_scheduler": sa.text("GRANT nodus_scheduler TO SESSION_USER"),
}
_HINT = "run the output of `nodus migrate --print-roles` as an administrator, then migrate again."


def prepare(connection: sa.Connection) -> None:
    """Take the lock, make what is missing of roles and schema, become the owner; committed."""
    connection.execute(sa.select(sa.func.pg_advisory_lock(sa.literal(LOCK_KEY, sa.BigInteger))))
    login, superuser, creates = connection.execute(
        sa.text(
            "SELECT rolname, rolsuper, rolcreaterole FROM pg_roles WHERE rolname = session_user"
        )
    ).one()
    if superuser or creates:
        make_roles(connection, superuser=superuser)
    missing = [role for role in PARTS if role not in existing_roles(connection)]
    if missing:
        raise MigrationRefused(
            f"The roles {', '.join(missing)} are missing and {login} may not make them: {_HINT}"
        )
    foreign = [role for role in PARTS if not usable(connection, role)]
    if foreign:
        raise MigrationRefused(f"{login} is no member of {', '.join(foreign)}: {_HINT}")
    make_schema(connection, login)
    connection.execute(sa.text("SET ROLE nodus_migrate"))  # one owner, whoever logs in
    # who waits for a table holds up all that come after it: `migrate` begins anew instead
    connection.execute(sa.text("SET lock_timeout = '3s'"))
    connection.commit()


def make_roles(connection: sa.Connection, *, superuser: bool) -> None:
    """Make the missing roles, and make the login a member of them."""
    present = existing_roles(connection)
    for role in PARTS:
        if role not in present:
            _unless_made_meanwhile(connection, _MAKE_ROLE[role])
    # a superuser needs no membership; another login grants it to itself where it is lacking
    for role in () if superuser else PARTS:
        if not usable(connection, role):
            connection.execute(_GRANT_TO_LOGIN[role])
    # partition upkeep does SET ROLE to the owner; NOINHERIT keeps that a deliberate act
    if not connection.scalar(
        sa.select(
            sa.func.pg_has_role("nodus_scheduler", "nodus_migrate", membership_word(connection))
        )
    ):
        connection.execute(sa.text("GRANT nodus_migrate TO nodus_scheduler"))


def _unless_made_meanwhile(connection: sa.Connection, statement: sa.TextClause) -> None:
    """Make a role, which belongs to the server: the lock is one of this database alone."""
    try:
        with connection.begin_nested():
            connection.execute(statement)
    except sa.exc.DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) not in ("42710", "23505"):
            raise


def existing_roles(connection: sa.Connection) -> set[str]:
    """Return which of the three roles the server has."""
    names = sa.column("rolname", sa.Text)
    found = connection.scalars(
        sa.select(names).select_from(sa.table("pg_roles", names)).where(names.in_(PARTS))
    )
    return set(found)


def usable(connection: sa.Connection, role: str) -> bool:
    """Say whether the login may SET ROLE to `role`."""
    may = sa.func.pg_has_role(sa.text("session_user"), role, membership_word(connection))
    return bool(connection.scalar(sa.select(may)))


def make_schema(connection: sa.Connection, login: str) -> None:
    """Make schema `nodus`, owned by `nodus_migrate`, where it is missing."""
    if connection.scalar(sa.text("SELECT to_regnamespace('nodus') IS NOT NULL")):
        return
    if not connection.scalar(
        sa.text("SELECT has_database_privilege(session_user, current_database(), 'CREATE')")
    ):
        raise MigrationRefused(f"{login} may not make schema nodus in this database: {_HINT}")
    connection.execute(sa.text("CREATE SCHEMA IF NOT EXISTS nodus AUTHORIZATION nodus_migrate"))


def run(connection: sa.Connection) -> None:
    """Prepare, then run the revisions in one transaction: all of them or none."""
    prepare(connection)
    context.configure(connection=connection, version_table_schema="nodus")
    with context.begin_transaction():
        context.run_migrations()


run(context.config.attributes["connection"])
