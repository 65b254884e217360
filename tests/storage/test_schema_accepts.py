"""What the schema must let happen, and what happens then (storage.md section 5, "Accepted")."""

from decimal import Decimal

import asyncpg
import pytest
from tests.storage.scene import Connection, play


async def head(scene: Connection) -> int:
    rev: int = await scene.fetchval("SELECT max(rev) FROM changes")
    return rev


async def test_a_hedged_attempt_with_chained_segments_of_two_machines(scene: Connection) -> None:
    await play(
        scene,
        "INSERT INTO leases (machine, attempt, fence, role, held, rate, token_sha256) VALUES (202,"
        " 101, 1, 'hedge', tstzrange(pg_temp.at(20), pg_temp.at(40)), 0.2, decode(repeat('02', 32),"
        " 'hex'))",
        "INSERT INTO cost_segments"
        " (attempt, machine, seq, segment, from_ts, to_ts, covered, rate, usd) VALUES"
        " (101, 201, 0, 'Boot', pg_temp.at(20), pg_temp.at(40), false, 0.1, 0.000556),"
        " (101, 201, 1, 'Running', pg_temp.at(40), pg_temp.at(60), false, 0.1, 0.000556),"
        " (101, 202, 0, 'Boot', pg_temp.at(20), pg_temp.at(30), true, 0.2, 0.000556),"
        " (101, 202, 1, 'Teardown', pg_temp.at(30), pg_temp.at(40), true, 0.2, 0.000556)",
        "SELECT pg_temp.publish(ARRAY[101], 'second')",
    )
    assert await scene.fetchval("SELECT count(*) FROM cost_segments WHERE attempt = 101") == 4


async def test_one_transaction_ends_an_epoch_and_inserts_its_successor(scene: Connection) -> None:
    before = await head(scene)
    await play(
        scene,
        "INSERT INTO checkpoints (workload, slot, seq, attempt, epoch, bytes, uri, sha256,"
        " committed, cursor_completed, cursor_total) VALUES (pg_temp.w(), '0', 1, 101, 1, 10, 'u',"
        " decode(repeat('aa', 32), 'hex'), pg_temp.at(50), 3, 9)",
        "UPDATE attempts SET stage = 'Lost', reason = 'Preempted', finished = pg_temp.at(60),"
        " superseded_by = 2 WHERE no = 101",
        "INSERT INTO interruptions VALUES (101, pg_temp.at(60), 'PreemptionNotice', 10)",
        "INSERT INTO attempts (no, uid, project, name, workload, slot, epoch, stage, queued,"
        " resumes, restore_seq, cursor_completed, cursor_total, restore_bytes)"
        " OVERRIDING SYSTEM VALUE VALUES (104, gen_random_uuid(), 'default', 'train-0-2',"
        " pg_temp.w(), '0', 2, 'Pending', pg_temp.at(60), true, 1, 3, 9, 10)",
        "SELECT pg_temp.publish(ARRAY[101, 104], 'second')",
    )
    log = await scene.fetch(
        "SELECT rev - $1 AS n, kind::text, name FROM changes WHERE rev > $1", before
    )
    assert [tuple(row) for row in log] == [(1, "M", "train-0"), (2, "A", "train-0-2")]
    assert await scene.fetchval("SELECT phase FROM attempts WHERE no = 101") == "Failed"


async def test_a_queued_placement_needs_no_offering(scene: Connection) -> None:
    await play(
        scene,
        "INSERT INTO placements (attempt, profile, candidates) VALUES (102, 'Cost', 0)",
        "INSERT INTO placement_rejections VALUES (102, 0, 'gpu-8', 'NoCapacity')",
        "SELECT pg_temp.publish(ARRAY[102], 'second')",
    )
    placed = await scene.fetchrow("SELECT offering, placed FROM placements WHERE attempt = 102")
    assert placed is not None
    assert tuple(placed) == (None, None)


async def test_a_lease_may_end_a_microsecond_after_it_began(scene: Connection) -> None:  # SC-608
    await scene.execute(
        "UPDATE leases SET held = tstzrange(lower(held), lower(held) + interval '1 microsecond')"
        " WHERE machine = 201"
    )
    assert not await scene.fetchval("SELECT upper_inf(held) FROM leases WHERE machine = 201")


async def test_a_machine_is_leased_again_when_it_is_free(scene: Connection) -> None:
    await play(
        scene,
        "UPDATE leases SET held = tstzrange(lower(held), pg_temp.at(60)) WHERE machine = 201",
        "INSERT INTO leases (machine, attempt, fence, role, held, rate, token_sha256) VALUES (201,"
        " 102, 2, 'first', tstzrange(pg_temp.at(60), NULL), 0.1, decode(repeat('ff', 32), 'hex'))",
    )
    assert await scene.fetchval("SELECT count(*) FROM leases WHERE machine = 201") == 2


async def test_an_unchanged_document_takes_the_new_ver_and_no_revision(
    scene: Connection,
) -> None:  # LW-216
    before = await head(scene)
    await play(
        scene,
        "UPDATE attempts SET waiting_for = 'Funds' WHERE no = 102",
        "SELECT pg_temp.publish(ARRAY[102], 'first')",
    )
    stored = await scene.fetchrow(
        "SELECT o.ver = a.ver AS current, o.rev FROM attempt_objects o JOIN attempts a ON no = 102"
        " WHERE attempt = 102"
    )
    assert stored is not None
    assert tuple(stored) == (True, before - 1)
    assert await head(scene) == before


async def test_publish_numbers_in_the_order_given_and_passes_over_the_unchanged(
    scene: Connection,
) -> None:
    before = await head(scene)
    returned = await scene.fetchval(
        "SELECT publish(ARRAY[103, 101, 102]::bigint[], ARRAY[pg_temp.doc('b'),"
        " pg_temp.doc('first'), pg_temp.doc('c')],"
        ' array_fill(\'{"labels":{},"fields":{}}\'::jsonb, ARRAY[3]))'
    )
    log = await scene.fetch("SELECT rev - $1 AS n, name FROM changes WHERE rev > $1", before)
    assert [tuple(row) for row in log] == [(1, "train-2"), (2, "train-1")]
    assert returned == before + 2


async def test_a_change_of_labels_alone_is_a_change_and_keeps_the_previous_ones(
    scene: Connection,
) -> None:
    before = await head(scene)
    await scene.execute(
        "SELECT publish(ARRAY[101]::bigint[], ARRAY[pg_temp.doc('first')],"
        ' ARRAY[\'{"labels":{"a":"1"},"fields":{}}\'::jsonb])'
    )
    row = await scene.fetchrow(
        "SELECT kind::text, sel::text, prev_sel::text, prev_rev - $1 AS back, prev_doc"
        " FROM changes WHERE rev > $1",
        before,
    )
    assert row is not None
    assert tuple(row) == (
        "M",
        '{"fields": {}, "labels": {"a": "1"}}',
        '{"fields": {}, "labels": {}}',
        -2,
        None,
    )


async def test_the_previous_document_is_kept_across_a_partition(scene: Connection) -> None:
    await scene.execute("RESET ROLE")
    await scene.execute(  # as if 262,144 changes had come in between
        "INSERT INTO changes (rev, kind) VALUES (262144, 'E')"
    )
    await scene.execute("SET LOCAL ROLE nodus_scheduler")
    await scene.execute("SELECT pg_temp.publish(ARRAY[101], 'second')")
    await scene.execute("SELECT pg_temp.publish(ARRAY[101], 'third')")
    rows = await scene.fetch(
        "SELECT rev, prev_doc = pg_temp.doc('first') AS kept FROM changes WHERE rev > 262144"
    )
    assert [tuple(row) for row in rows] == [(262145, True), (262146, None)]


async def test_retire_moves_an_attempt_with_its_ledger_into_the_archive(scene: Connection) -> None:
    before = await head(scene)
    returned = await scene.fetchval("SELECT retire(ARRAY[103]::bigint[], ARRAY['zip'::bytea])")
    await play(scene)

    archived = await scene.fetchrow(
        "SELECT name, workload_kind, workload_name, slot, epoch, phase, reason, rev - $1 AS rev,"
        " usd, jsonb_array_length(ledger) AS segments, doc FROM attempts_archive",
        before,
    )
    log = await scene.fetchrow(
        "SELECT rev - $1 AS rev, kind::text, name, doc = pg_temp.doc('first') AS doc, prev_doc,"
        " prev_rev - $1 AS back FROM changes WHERE rev > $1",
        before,
    )
    checkpoint = await scene.fetchrow("SELECT seq, attempt FROM checkpoints")
    assert archived is not None
    assert log is not None
    assert checkpoint is not None
    assert tuple(archived) == (
        "train-2",
        "Job",
        "train",
        "2",
        1,
        "Failed",
        "CustomerExit",
        0,
        Decimal("0.002223"),  # Teardown is covered, so Boot and Running alone
        3,
        b"zip",
    )
    assert tuple(log) == (1, "D", "train-2", True, None, 0)
    assert returned == before + 1
    assert await scene.fetchval("SELECT archived_usd FROM workloads") == Decimal("0.002223")
    assert tuple(checkpoint) == (1, None)  # outlives the attempt that made it
    assert await scene.fetchval("SELECT count(*) FROM attempts WHERE no = 103") == 0


async def test_retire_of_an_epoch_that_an_earlier_one_points_to_is_refused(
    scene: Connection,
) -> None:
    await play(
        scene,
        "INSERT INTO attempts (no, uid, project, name, workload, slot, epoch, stage, queued,"
        " reason, finished, deletion_proven) OVERRIDING SYSTEM VALUE VALUES (104,"
        " gen_random_uuid(), 'default', 'train-2-2', pg_temp.w(), '2', 2, 'Stopped',"
        " pg_temp.at(120), 'Stopped', pg_temp.at(130), pg_temp.at(130))",
        "UPDATE attempts SET superseded_by = 2 WHERE no = 103",
        "SELECT pg_temp.publish(ARRAY[103, 104], 'second')",
    )
    await scene.execute("SAVEPOINT tried")
    with pytest.raises(asyncpg.ForeignKeyViolationError) as refused:
        await play(scene, "SELECT retire(ARRAY[104]::bigint[], ARRAY['zip'::bytea])")
    await scene.execute("ROLLBACK TO tried")
    await play(scene, "SELECT retire(ARRAY[103, 104]::bigint[], ARRAY['a'::bytea, 'b'::bytea])")

    assert refused.value.constraint_name == "attempts_workload_slot_superseded_by_fkey"
    assert await scene.fetchval("SELECT count(*) FROM attempts_archive") == 2


async def test_the_edge_of_the_log_only_moves_forward(scene: Connection) -> None:
    await scene.execute("SELECT advance_oldest(3)")
    await scene.execute("SELECT advance_oldest(2)")
    assert await scene.fetchval("SELECT oldest FROM feed") == 3


async def test_an_epoch_starts_on_an_operators_word_alone(scene: Connection) -> None:
    before = await head(scene)
    assert await scene.fetchval("SELECT start_epoch(false)") == before
    assert await scene.fetchval("SELECT start_epoch(true)") == 1 << 44
    epoch = await scene.fetchrow("SELECT first_rev, prev_last FROM feed_epochs WHERE epoch = 1")
    assert epoch is not None
    assert tuple(epoch) == (1 << 44, before)
    assert await scene.fetchval("SELECT pg_temp.publish(ARRAY[101], 'second')") == (1 << 44) + 1


async def test_another_timeline_starts_an_epoch_at_the_next_write(scene: Connection) -> None:
    before = await head(scene)
    await scene.execute("RESET ROLE")
    await scene.execute("UPDATE feed SET timeline = 'FFFFFFFF'")  # as after a promotion
    await scene.execute("SET LOCAL ROLE nodus_scheduler")

    assert await scene.fetchval("SELECT lock_feed()") == 1 << 44
    assert await scene.fetchval("SELECT lock_feed()") == 1 << 44
    marker = await scene.fetchrow("SELECT rev, kind::text FROM changes WHERE rev > $1", before)
    assert marker is not None
    assert tuple(marker) == (1 << 44, "E")


async def test_the_first_rows_are_there(superuser: Connection) -> None:
    (first,) = await superuser.fetch(
        "SELECT o.name, f.balance, f.held, p.name AS project FROM organizations o"
        " JOIN funds f ON f.organization = o.name JOIN projects p ON p.organization = o.name"
    )
    assert tuple(first) == ("default", None, Decimal(0), "default")
