"""nodus-runner: wraps one program on its machine and reports what becomes of it (SC-640 to SC-645).

It stands apart: standard library only, nothing of ours, so that it starts in any image that has a
Python (`python -m nodus_api.runner DIRECTORY`, or the zipapp of `bundle`).

Decision 1: three threads around one queue. The main thread alone decides and signals; one thread
posts reports, so that a server that is away never delays a stop; one thread waits for the program's
end, so that its moment is exact. Cost: two threads a runner.

Decision 2: the runner claims its work directory (`identity.claim`) before it reads anything
else, so that a directory has at most one runner ever, whoever spawned how many. Cost: a runner
that dies cannot be started again on its directory; its machine is lost.

What it says to the server: POST /runner/v1/report, `Authorization: Bearer TOKEN`, a JSON body
`{attempt, epoch, machine, fence, n, kind, ageMs, …}` (SC-641); `machine` is the machine's key. A
repeated canStart has a new n. What it takes as an answer: a JSON object with `orders`, a list of
`{"kind": "stop", "graceMs": 30000}`, `{"kind": "checkpointNow"}` and `{"kind": "die"}`, obeyed once
each however often it is repeated, and, for canStart, `granted`, `retryMs` and `lastSeq`. A 409
whose Status has the reason StaleEpoch ends program and runner; any other 400, 409, 413 and 422
drops that one report; everything else is tried again.
"""
