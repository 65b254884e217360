"""The soak: many watchers on two replicas while everything is restarted, and nothing may be lost.

Decision 1. The log is the judge. Context: with hundreds of events a second for half an hour, no
history can be kept whole. Choice: one reader follows the log and tells each watcher which lines it
must get, byte for byte; what came and what was due are compared as they come and then forgotten.
Cost: a fault in the log itself (its order, say) is seen only by its numbers, which must follow
each other; the rest of it is the stress test's of storage.md section 11.
"""
