"""What the partial indexes are of, spelt as the schema spells it.

Not as parameters: a plan that serves any parameter cannot tell that an index fits.
"""

import sqlalchemy as sa

from nodus_api.storage import tables as t


def machine_open() -> sa.ColumnElement[bool]:
    """A machine that is not Gone: `machines_open`."""
    return t.machines.c.state != sa.literal_column("'Gone'")


def workload_named() -> sa.ColumnElement[bool]:
    """A workload whose name is taken, since it is not Deleted: `workloads_name`."""
    return t.workloads.c.state != sa.literal_column("'Deleted'")
