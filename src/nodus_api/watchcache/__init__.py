"""One replica's view of the Attempts: loaded once, kept by following the change log.

Decision 1. Orders are immutable tuples of tuples, not lists that are copied when pinned: a snapshot
is then a reference, taken without a copy by every list, and safe over any wait. A change costs one
chunk of at most 256 references and the list of chunks, some microseconds.

Decision 2. The indexes are of the present alone, and no version of them is kept: a set of slots as
of the first step of a read, and the question whether an entry is still the present version of its
Attempt, answer for every older state, too. Cost: what changed since is looked at value by value.

Decision 3. A watcher holds a revision and no queue, so that a slow client costs nothing but its own
time; what it has missed lies in the history, or in the log.
"""

from nodus_api.watchcache.cacher import AttemptCache, Page
from nodus_api.watchcache.history import Window

__all__ = ["AttemptCache", "Page", "Window"]
