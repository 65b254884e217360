"""Postgres: rows, the ordered change feed, who may read, and the embedded server.

Decision 2: the log is the order. A writing transaction, as its last step, locks the one row of
`feed`, numbers its changes from the head of the log and commits, so revision order is commit
order and has no gap; readers check that. The price is one serial section a database
(storage.md section 3). Decision 1, on roles, stands in `engine`.
"""

from nodus_api.storage.access_store import AccessAdmin, AccessStore
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Feed

__all__ = ["AccessAdmin", "AccessStore", "Database", "Feed", "Role"]
