"""A small world in one transaction, on which the schema's rules are tried.

Attempts 101 (slot 0, Running on machine 201), 102 (slot 1, Pending) and 103 (slot 2, Failed, its
machine 203 gone, its cost in three segments), all published. Machine 202 is free. `pg_temp.at(n)`
is a moment n seconds into 2026, `pg_temp.publish(nos, mark)` publishes with `mark` in the document.
"""

from typing import TypeAlias

import asyncpg

SCENE = """
CREATE FUNCTION pg_temp.at(n numeric) RETURNS timestamptz LANGUAGE sql
  AS $$ SELECT '2026-01-01T00:00:00Z'::timestamptz + n * interval '1 second' $$;
CREATE FUNCTION pg_temp.w() RETURNS uuid LANGUAGE sql
  AS $$ SELECT '00000000-0000-0000-0000-000000000001'::uuid $$;
CREATE FUNCTION pg_temp.doc(mark text) RETURNS bytea LANGUAGE sql
  AS $$ SELECT convert_to('{"apiVersion":"nodus.dev/v1","kind":"Attempt",'
    || '"metadata":{"resourceVersion":"","name":"' || mark || '"}}', 'UTF8') $$;
CREATE FUNCTION pg_temp.publish(nos bigint[], mark text) RETURNS bigint LANGUAGE sql
  AS $$ SELECT publish(nos, array_agg(pg_temp.doc(mark)),
    array_agg('{"labels":{},"fields":{}}'::jsonb)) FROM unnest(nos) $$;

INSERT INTO offering_classes (name, count, vcpus, memory_gib, disk_gib, arch, region_class,
    gang_capable, rate_on_demand, speed, reference_rate)
  VALUES ('cpu-2', 0, 2, 4, 20, 'amd64', 'eu', false, 0.1, 1, 0.1);
INSERT INTO supplier_offers (no, class, supplier, instance_type, region, cost_on_demand)
  OVERRIDING SYSTEM VALUE VALUES (1001, 'cpu-2', 'local', 'host', 'here', 0.05);
INSERT INTO workloads (uid, project, kind, name, spec, created)
  VALUES (pg_temp.w(), 'default', 'Job', 'train', '{}', pg_temp.at(0));
INSERT INTO slots (workload, slot) SELECT pg_temp.w(), n FROM unnest(ARRAY['0','1','2']) n;

INSERT INTO attempts (no, uid, project, name, workload, slot, epoch, stage, queued, acquired,
    billing_start, registered, command_started, reason, exit_code, finished, deletion_proven)
  OVERRIDING SYSTEM VALUE VALUES
  (101, '00000000-0000-0000-0000-000000000101', 'default', 'train-0', pg_temp.w(), '0', 1,
    'Running', pg_temp.at(0), pg_temp.at(10), pg_temp.at(20), pg_temp.at(30), pg_temp.at(40),
    NULL, NULL, NULL, NULL),
  (102, '00000000-0000-0000-0000-000000000102', 'default', 'train-1', pg_temp.w(), '1', 1,
    'Pending', pg_temp.at(0), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (103, '00000000-0000-0000-0000-000000000103', 'default', 'train-2', pg_temp.w(), '2', 1,
    'Failed', pg_temp.at(0), pg_temp.at(10), pg_temp.at(20), pg_temp.at(30), pg_temp.at(40),
    'CustomerExit', 1, pg_temp.at(100), pg_temp.at(120));
INSERT INTO placements (attempt, profile, candidates, offering, market, rate, hedged, warm_reuse,
    scores, fallbacks, predicted_usd, predicted_hours, predicted_rate)
  SELECT n, 'Balanced', 1, 'cpu-2', 'on-demand', 0.1, false, false, '{}', '{}', 1, 1, 0
  FROM unnest(ARRAY[101, 103]) n;
INSERT INTO machines (no, key, organization, offer, offering, market, state, handle, requested,
    granted, billing_start, registered, gone) OVERRIDING SYSTEM VALUE
  SELECT n, 'key-' || n, 'default', 1001, 'cpu-2', 'on-demand', CASE n WHEN 203 THEN 'Gone'
    ELSE 'Registered' END, 'handle-' || n, pg_temp.at(10), pg_temp.at(20), pg_temp.at(20),
    pg_temp.at(30), CASE n WHEN 203 THEN pg_temp.at(120) END
  FROM unnest(ARRAY[201, 202, 203]) n;
INSERT INTO leases (machine, attempt, fence, role, held, rate, won, token_sha256) VALUES
  (201, 101, 1, 'first', tstzrange(pg_temp.at(20), NULL), 0.1, true,
    decode(repeat('01', 32), 'hex')),
  (203, 103, 1, 'first', tstzrange(pg_temp.at(20), pg_temp.at(120)), 0.1, true,
    decode(repeat('03', 32), 'hex'));
INSERT INTO cost_segments
    (attempt, machine, seq, segment, from_ts, to_ts, covered, rate, usd) VALUES
  (103, 203, 0, 'Boot', pg_temp.at(20), pg_temp.at(40), false, 0.1, 0.000556),
  (103, 203, 1, 'Running', pg_temp.at(40), pg_temp.at(100), false, 0.1, 0.001667),
  (103, 203, 2, 'Teardown', pg_temp.at(100), pg_temp.at(120), true, 0.1, 0.000556);
INSERT INTO checkpoints (workload, slot, seq, attempt, epoch, bytes, uri, sha256, committed)
  VALUES (pg_temp.w(), '2', 1, 103, 1, 10, 'file:1', decode(repeat('aa', 32), 'hex'),
    pg_temp.at(50));
SELECT pg_temp.publish(ARRAY[101, 102, 103], 'first');
SET CONSTRAINTS ALL IMMEDIATE;
SET CONSTRAINTS ALL DEFERRED;
"""

# generic in its stubs alone
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def play(connection: Connection, *statements: str) -> None:
    """Run statements, then every deferred key, as a commit would."""
    for statement in statements:
        await connection.execute(statement)
    await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
