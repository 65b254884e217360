"""nodus-runner: wraps one program on its machine and reports what becomes of it (SC-640 to SC-645).

It stands apart: standard library only, nothing of ours, so that it starts in any image that has a
Python (`python -m nodus_api.runner DIRECTORY`, or the zipapp of `bundle`).

Decision 1: threads around one queue. The main thread alone decides and signals; one thread posts
reports, so that a server that is away never delays a stop; one waits for the program's end, so that
its moment is exact; one hears the program and copies its checkpoints, and one fetches the
checkpoint to go on from, so that gigabytes never delay a heartbeat. Cost: three threads a runner.

Decision 2: the runner claims its work directory (`identity.claim`) before it reads anything
else, so that a directory has at most one runner ever, whoever spawned how many. Cost: a runner
that dies cannot be started again on its directory; its machine is lost.

Decision 3: a checkpoint is a copy that the runner makes of a directory the program names, in the
supplier's store under SLOT/EPOCH/SEQ, durable before it is proposed; the program learns of the
commit from a file (`channel`). A file, `checkpoint-now`, also passes on that a checkpoint is asked
for: a signal would kill the programs that do not expect it. On restore the program gets a checked
copy, so that nothing it does can spoil the checkpoint. Cost: the bytes are copied twice a restore,
and the program looks for a file now and then.

What the program sees beside its own environment: NODUS_PROGRESS, the FIFO it writes lines to;
NODUS_RESTORE_DIR, the checkpoint it goes on from; and what the intent's context says (SC-143), as
NODUS_RESTORE_SEQ, NODUS_CURSOR_COMPLETED, NODUS_CURSOR_TOTAL and NODUS_CHECKPOINT_INTERVAL.

What it says to the server: POST /runner/v1/report, `Authorization: Bearer TOKEN`, a JSON body
`{attempt, epoch, machine, fence, n, kind, ageMs, …}` (SC-641); `machine` is the machine's key. A
repeated canStart has a new n. What it takes as an answer: a JSON object with `orders`, a list of
`{"kind": "stop", "graceMs": 30000}`, `{"kind": "checkpointNow"}` and `{"kind": "die"}`, obeyed once
each however often it is repeated; for canStart, `granted`, `retryMs` and `lastSeq`; for
checkpoint, `committed`, the seq, or `retryMs` while it is not known (SC-645). A 409 whose Status
has the reason StaleEpoch ends program and runner; any other 400, 409, 413 and 422 drops that one
report; everything else is tried again.
"""
