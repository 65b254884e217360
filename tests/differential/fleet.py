"""What both servers hold: some dozens of Attempts in every phase, with a history behind them."""

from tests.attempts.examples import EXAMPLES
from tests.differential.pair import Pair

PROJECTS = {"default": True, "example": True, "other": False, "sizes": False, "empty": True}
"""The projects, and whether alice may see each."""


async def fill(pair: Pair) -> None:
    """Create, change and delete, the same in both."""
    for number, example in enumerate(EXAMPLES):
        await pair.create("example", f"train-{number}-e1", example, tier=f"t{number % 3}")
    for number in range(6):
        await pair.create("other", f"scan-{number}-e1", "running", size=str(number * 2))
    for number, size in enumerate(("4", "6", "abc", "", "007")):
        await pair.create("sizes", f"sized-{number}-e1", "succeeded", x=size)
    for name in ("a.b-e1", "a-b-e1", "a-e1"):
        await pair.create("default", name, "queued")
    await pair.change("example", "train-0-e1", "acquiring", tier="t0")
    await pair.change("other", "scan-0-e1", "succeeded", size="0")
    await pair.create("example", "gone-0-e1", "running")
    await pair.delete("example", "gone-0-e1")
    await pair.change("other", "scan-1-e1", "failed-lost")
    await pair.caught_up()
