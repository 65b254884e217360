"""Machines that are process sessions on this host: the default supplier (SC-710 to SC-714).

Decision 1: the work directory is the machine. It appears whole by one rename, its runner claims
it by one link, and every answer is read from it and from /proc; nothing is remembered that a
restarted loop would need. A machine that was deleted leaves a small tombstone for a day: it is
the proof, and it refuses a late repeat of the create. Cost: some file reads an observation.

Decision 2: the runner is spawned by `posix_spawn` and never waited for as a child must be. It
leads its own session and outlives the loop; if it ends while its spawner lives, whoever looks at
the machine reaps it. Cost: a zombie between two looks, which counts as dead (SC-712).
"""

from nodus_api.suppliers.local.supplier import LocalSupplier

__all__ = ["LocalSupplier"]
