"""The command line, the one place that knows every part and joins them.

Decision 1. Commands load lazily: `nodus --help` imports click and nothing of ours, since the
parts take about a second to import. What it costs: the short helps stand in `main.py` too, and
a test compares them with the commands.

Decision 2. `nodus up` is a supervisor of real processes instead of one process with every part:
a part that dies takes nothing else along, and what is run on one machine is what is deployed.
The supervisor itself is synchronous (signals, child processes, files), so that it does not share
an event loop with anything that could hang it.
"""
