"""What the watch cache takes, measured in a process of its own."""

from nodus_api.bench.attempt_documents import AttemptMaker
from nodus_api.bench.cache_memory import cache_memory


async def test_the_cache_takes_at_most_1_6_times_its_payload() -> None:
    """Target 20 of performance.md, at a size that fits a test; all indexes and rows included."""
    found = await cache_memory(20_000, projects=100)

    assert found.attempts == 20_000
    assert 30_000_000 < found.payload < found.cache
    assert found.ratio <= 1.6
    assert found.load_seconds > 0


def test_made_attempts_differ_in_what_tells_them_apart_alone() -> None:
    maker = AttemptMaker(projects=3)
    made = list(maker.all(1000))

    assert len({one.uid for one in made}) == len({(one.project, one.name) for one in made}) == 1000
    assert {one.project for one in made} == {"team-0000", "team-0001", "team-0002"}
    assert made[5] == maker.make(5)
    mean = sum(len(one.doc) for one in made) / len(made)
    assert 1800 < mean < 2000  # as the documents that storage.md counts with
    assert sum('"Queued"' in one.sel for one in made) == 10
