"""What walks have lived through: a walk in which nothing happens proves nothing."""

from collections import Counter

from tests.scheduler.walk.together import Tables


def seen(tables: Tables) -> Counter[str]:
    """Count the kinds of ends, starts and commands of one walk's rows."""
    found: Counter[str] = Counter()
    triggers = {one["attempt"]: one["trigger"] for one in tables["interruptions"]}
    for one in tables["attempts"]:
        trigger = triggers.get(one["no"], "")
        who = "Attempts" if one["gang"] is None else "ranks"
        found[who] += 1
        found[f"{who} that started"] += one["command_started"] is not None
        found[f"{who} {one['stage']} {one['reason'] or ''} {trigger}".strip()] += 1
        if one["gang_rank"] == 0 and one["epoch"] > 1 and one["command_started"] is not None:
            found["gangs started again"] += 1
    saved = Counter((one["workload"], one["seq"]) for one in tables["checkpoints"])
    found["checkpoints"] += len(saved)
    found["checkpoints of gangs"] += sum(ranks > 1 for ranks in _ranks(tables, saved))
    for one in tables["leases"]:
        found["hedges"] += one["role"] == "hedge"
        found["hedges that won"] += one["role"] == "hedge" and one["won"]
        found["machines that died in a race"] += one["lost_cause"] is not None
    for one in tables["placements"]:
        found["warm machines taken"] += bool(one["warm_reuse"])
    found["idle times"] += len(tables["idle_time"])
    for one in tables["commands"]:
        found[f"{one['verb']} {one['outcome']}"] += 1
    return found


def _ranks(tables: Tables, saved: Counter[tuple[str, int]]) -> list[int]:
    gangs = {one["workload"] for one in tables["attempts"] if one["gang"] is not None}
    return [ranks for (workload, _), ranks in saved.items() if workload in gangs]
