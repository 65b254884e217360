"""A life's documents as they were reviewed: compared, or written anew.

`NODUS_WRITE_GOLDENS=1 pytest tests/goldens_live` writes them; a difference is reviewed like code,
since it is what a client sees of such a life.
"""

import json
import os
from difflib import unified_diff
from pathlib import Path

from tests.goldens_live import presence
from tests.goldens_live.live_world import LiveWorld
from tests.goldens_live.normal import Normal

BODIES = Path(__file__).parent / "bodies"
WRITE = "NODUS_WRITE_GOLDENS"


async def compare(live: LiveWorld, name: str, owner: str = "train", *, ended: bool = True) -> None:
    """Compare all Attempts of a Job, each over and proven if `ended`, with the reviewed ones."""
    served = await live.served()
    attempts = [one for one in served if one["metadata"]["labels"] == {"nodus.dev/job": owner}]
    for one in attempts if ended else ():
        presence.check(one)
    made = Normal(attempts, live.clock.stands).documents()
    body = json.dumps(made, indent=2) + "\n"
    path = BODIES / f"{name}.json"
    if os.environ.get(WRITE):
        path.write_text(body)
    reviewed = path.read_text()
    difference = "\n".join(unified_diff(reviewed.splitlines(), body.splitlines(), lineterm=""))
    assert body == reviewed, f"run with {WRITE}=1 and review the difference:\n{difference}"
