"""Machines that are process sessions on this host: the default supplier (SC-710 to SC-714).

Decision 1: the work directory is the machine. It appears whole by one rename, its runner claims
it by one link, and every answer is read from it and from /proc; nothing is remembered that a
restarted loop would need. A machine that was deleted leaves a small tombstone for a day: it is
the proof, and it refuses a late repeat of the create. Cost: some file reads an observation.

Decision 2: the runner is spawned by `posix_spawn` and never waited for as a child must be. It
leads its own session and outlives the loop; if it ends while its spawner lives, whoever looks at
the machine reaps it. Cost: a zombie between two looks, which counts as dead (SC-712).

Decision 3: a memory limit is the kernel's where a memory controller can be had, cgroup v2 before
v1; else the address space's, which kills nothing and also counts what is mapped and never touched.
Which one held stands in the scheduler's line "runner spawned" and in the runner's log. Only the
program's own death by it is OutOfMemory, not a child's: its exit code is then its own word. Cost:
two ways to one end, and on v1 a group that must not outlive its machine.
"""

from nodus_api.suppliers.local.supplier import LocalSupplier

__all__ = ["LocalSupplier"]
