"""Simulated Attempts: `nodus simulate`, and what the benchmarks fill their databases with.

Decision 1. Lives without a supplier. Context: the simulated fleet is not there yet. Choice: a
publisher leads in the scheduler's place and moves Attempts through lives drawn beforehand, with
the kernel's transitions, the scheduler's consequences (bills, slots, recovery) and storage's
batches; so rows, documents and bills are those of the product. Cost: what suppliers answer and
runners report is not exercised, and the passes that look for what is due are not either.

Decision 2. Event times are simulated. What is next for an Attempt, and when, follows from its row
and its life; so a batch whose outcome is unknown is simply looked at again.

Decision 3. A study's baselines are the product with one thing left out: spot, by the manifests'
own policy, or the scores, by a function handed to the loop in place of the kernel's `place`. So
what is compared differs in the choice alone, and placement knows nothing of studies. Cost: what a
run takes, since every one is the whole loop on a database of its own.
"""
