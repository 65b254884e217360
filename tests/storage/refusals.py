"""Statements that the schema refuses, by the name of the rule that refuses them.

Each is tried on the scene (`scene.py`) by the scheduler's role, or by the owner where nobody else
may write the table at all.
"""

_OBJECT = "'00000000-0000-0000-0000-000000000101', 'default', 'train-0', 9, '{}', pg_temp.doc('x')"
_CHANGE = "INSERT INTO changes (rev, kind, uid, project, name, ver, sel, doc, prev_rev) VALUES "
_ATTEMPT = (
    "INSERT INTO attempts (uid, project, name, workload, slot, epoch, stage, queued, reason,"
    " finished) VALUES (gen_random_uuid(), 'default', "
)
_MACHINE = (
    "INSERT INTO machines (key, organization, offer, offering, market, state, requested, gone,"
    " handle, warm_until) VALUES ('new', 'default', 1001, 'cpu-2', "
)
_LEASE = "INSERT INTO leases (machine, attempt, fence, role, held, rate, won, token_sha256) VALUES "
_HELD = "tstzrange(pg_temp.at(20), NULL)"
_TOKEN = "decode(repeat('ff', 32), 'hex')"  # noqa: S105 - a hash of nothing
_NEW_TOKEN = "INSERT INTO tokens (secret_sha256, id, username) VALUES "  # noqa: S105 - a statement
_GANG = "UPDATE attempts SET (gang, gang_epoch, gang_rank, gang_size) = "
_SEGMENT = (
    "INSERT INTO cost_segments (attempt, machine, seq, segment, from_ts, to_ts, covered, rate, usd)"
    " VALUES "
)
_CHECKPOINT = (
    "INSERT INTO checkpoints (workload, slot, seq, attempt, epoch, kind, bytes, uri, sha256,"
    " committed, cursor_completed, cursor_total) VALUES (pg_temp.w(), '0', "
)
_HASH = "decode(repeat('aa', 32), 'hex')"
_REPORT = "INSERT INTO runner_reports VALUES (201, 1, "
_CLASS = (
    "INSERT INTO offering_classes (name, accelerator, count, vcpus, memory_gib, disk_gib, arch,"
    " region_class, gang_capable, rate_on_demand, speed, reference_rate) VALUES ('new', "
)
_CALIBRATION = "INSERT INTO calibrations VALUES ('default', 'Job', 'train',"

CHECKS_OF_THE_OWNER: dict[str, str] = {
    "installation_one_row": "INSERT INTO installation (one) VALUES (false)",
    "runner_key_one_row": "INSERT INTO runner_key (one) VALUES (false)",
    "feed_one_row": "INSERT INTO feed VALUES (false, 0, '', 0, 1)",
    "feed_epoch_range": "UPDATE feed SET epoch = 524287",
    "feed_epochs_first_rev_in_epoch": "INSERT INTO feed_epochs VALUES (1, 5, 4, '', 0)",
    "feed_epochs_prev_last_before_first": (
        "INSERT INTO feed_epochs VALUES (1, 1::bigint << 44, 1::bigint << 44, '', 0)"
    ),
    "changes_rev_positive": "INSERT INTO changes (rev, kind) VALUES (0, 'E')",
    "changes_kind_known": "INSERT INTO changes (rev, kind) VALUES (5000, 'X')",
    "changes_prev_rev_older": f"{_CHANGE} (5000, 'M', {_OBJECT}, 5000)",
    "changes_marker_without_object": f"{_CHANGE} (5000, 'E', {_OBJECT}, NULL)",
    "changes_object_whole": (
        "INSERT INTO changes (rev, kind, uid) VALUES (5000, 'A', gen_random_uuid())"
    ),
    "changes_prev_rev_given": f"{_CHANGE} (5000, 'A', {_OBJECT}, 1)",
    "access_changes_rev_positive": "INSERT INTO access_changes VALUES (0, 'token', 'a', false)",
    "access_changes_what_known": "INSERT INTO access_changes VALUES (99, 'cat', 'a', false)",
}

CHECKS: dict[str, str] = {
    "usd_not_negative": "UPDATE funds SET held = -1",
    "label63_form": "INSERT INTO organizations VALUES ('Bad')",
    "project_members_subject_kind_known": (
        "INSERT INTO project_members VALUES ('default', 'robot', 'a', 'viewer')"
    ),
    "project_members_role_known": (
        "INSERT INTO project_members VALUES ('default', 'user', 'a', 'owner')"
    ),
    "tokens_id_form": f"{_NEW_TOKEN} ({_TOKEN}, 'ABC', 'ann')",
    "tokens_secret_sha256_length": f"{_NEW_TOKEN} ('\\x00', 'abcdefghij23', 'ann')",
    "tokens_username_not_system": f"{_NEW_TOKEN} ({_TOKEN}, 'abcdefghij23', 'system:a')",
    "workloads_kind_known": "UPDATE workloads SET kind = 'Cron'",
    "workloads_state_known": "UPDATE workloads SET state = 'Odd'",
    "slots_slot_form": "INSERT INTO slots (workload, slot) VALUES (pg_temp.w(), 'a')",
    "slots_current_epoch_not_negative": "UPDATE slots SET current_epoch = -1",
    "slots_last_seq_not_negative": "UPDATE slots SET last_seq = -1",
    "slots_state_known": "UPDATE slots SET state = ''",
    "commands_verb_known": (
        "INSERT INTO commands (key, project, verb, target, body, asked_by)"
        " VALUES ('k', 'default', 'reboot', 't', '{}', 'a')"
    ),
    "commands_applied_with_outcome": (
        "INSERT INTO commands (key, project, verb, target, body, asked_by, applied)"
        " VALUES ('k', 'default', 'stop', 't', '{}', 'a', pg_temp.at(0))"
    ),
    "drill_schedules_per_hour_positive": (
        "INSERT INTO drill_schedules VALUES ('default', 'preemption', 0, 1)"
    ),
    "offering_classes_count_not_negative": (
        f"{_CLASS} 'h100', -1, 1, 1, 1, 'amd64', 'eu', false, 1, 1, 1)"
    ),
    "offering_classes_region_class_known": "UPDATE offering_classes SET region_class = 'moon'",
    "offering_classes_speed_positive": "UPDATE offering_classes SET speed = 0",
    "offering_classes_count_with_accelerator": (
        f"{_CLASS} NULL, 1, 1, 1, 1, 'amd64', 'eu', false, 1, 1, 1)"
    ),
    "supplier_offers_increment_positive": (
        "UPDATE supplier_offers SET billing_increment_seconds = 0"
    ),
    "offering_stats_market_known": (
        "INSERT INTO offering_stats VALUES (1001, 'auction', '{}', 1, 0, NULL, pg_temp.at(0))"
    ),
    "offering_stats_available_not_negative": (
        "INSERT INTO offering_stats VALUES (1001, 'spot', '{}', -1, 0, NULL, pg_temp.at(0))"
    ),
    "calibrations_count_with_accelerator": f"{_CALIBRATION} 'h100', 0, 1, '[]', pg_temp.at(0))",
    "calibrations_ratio_clamped": f"{_CALIBRATION} '', 0, 2.1, '[]', pg_temp.at(0))",
    "attempts_name_form": "UPDATE attempts SET name = 'Train' WHERE no = 102",
    "attempts_epoch_positive": (
        f"{_ATTEMPT} 'x', pg_temp.w(), '2', 0, 'Stopped', pg_temp.at(0), 'Stopped', pg_temp.at(1))"
    ),
    "attempts_superseded_by_next_epoch": "UPDATE attempts SET superseded_by = 3 WHERE no = 102",
    "attempts_gang_epoch_positive": (f"{_GANG} ('g', 0, 0, 1) WHERE no = 102"),
    "attempts_gang_whole": "UPDATE attempts SET gang = 'g' WHERE no = 102",
    "attempts_gang_rank_below_size": (f"{_GANG} ('g', 1, 2, 2) WHERE no = 102"),
    "attempts_restore_bytes_not_negative": "UPDATE attempts SET restore_bytes = -1 WHERE no = 102",
    "attempts_restore_only_if_resumes": "UPDATE attempts SET restore_seq = 1 WHERE no = 102",
    "attempts_cursor_whole": (
        "UPDATE attempts SET resumes = true, restore_seq = 1, cursor_completed = 1 WHERE no = 102"
    ),
    "attempts_cursor_completed_within_total": (
        "UPDATE attempts SET resumes = true, restore_seq = 1, cursor_completed = 3,"
        " cursor_total = 2 WHERE no = 102"
    ),
    "attempts_cursor_with_restore": (
        "UPDATE attempts SET cursor_completed = 1, cursor_total = 2 WHERE no = 102"
    ),
    "attempts_stage_known": "UPDATE attempts SET stage = 'Sleeping' WHERE no = 102",
    "attempts_exit_code_range": "UPDATE attempts SET exit_code = 256 WHERE no = 103",
    "attempts_signal_range": "UPDATE attempts SET exit_code = 193, signal = 65 WHERE no = 103",
    "attempts_waiting_for_known": "UPDATE attempts SET waiting_for = 'Godot' WHERE no = 102",
    "attempts_pull_seconds_not_negative": "UPDATE attempts SET pull_seconds = -1 WHERE no = 101",
    "attempts_ended": "UPDATE attempts SET finished = pg_temp.at(100) WHERE no = 101",
    "attempts_reason": (
        "UPDATE attempts SET stage = 'Failed', finished = pg_temp.at(100) WHERE no = 101"
    ),
    "attempts_exit": (
        "UPDATE attempts SET stage = 'Succeeded', exit_code = 3, finished = pg_temp.at(100)"
        " WHERE no = 101"
    ),
    "attempts_milestones": "UPDATE attempts SET stage = 'Running' WHERE no = 102",
    "attempts_waiting": "UPDATE attempts SET waiting_message = 'soon' WHERE no = 102",
    "attempts_order": "UPDATE attempts SET command_started = pg_temp.at(25) WHERE no = 101",
    "attempts_seconds": "UPDATE attempts SET command_started = pg_temp.at(40.5) WHERE no = 101",
    "placements_profile_known": "UPDATE placements SET profile = 'Luck'",
    "placements_candidates_not_negative": "UPDATE placements SET candidates = -1",
    "placements_market_known": "UPDATE placements SET market = 'auction'",
    "placements_scores_object": "UPDATE placements SET scores = '[]'",
    "placements_fallbacks_at_most_5": "UPDATE placements SET fallbacks = '{a,b,c,d,e,f}'",
    "placements_predicted_hours_not_negative": "UPDATE placements SET predicted_hours = -1",
    "placements_predicted_rate_not_negative": "UPDATE placements SET predicted_rate = -1",
    "placements_all_or_none": "UPDATE placements SET rate = NULL",
    "placement_rejections_ord_range": "INSERT INTO placement_rejections VALUES (101, 20, 'a', 'b')",
    "decisions_n_positive": (
        "INSERT INTO decisions VALUES (101, 0, pg_temp.at(0), '{}', 's', '', '[]', '{}')"
    ),
    "decisions_top_at_most_5": (
        "INSERT INTO decisions VALUES (101, 1, pg_temp.at(0), '{}', 's', '', '[1,2,3,4,5,6]', '{}')"
    ),
    "interruptions_trigger_known": (
        "INSERT INTO interruptions VALUES (101, pg_temp.at(50), 'Comet', 0)"
    ),
    "interruptions_lost_seconds_not_negative": (
        "INSERT INTO interruptions VALUES (101, pg_temp.at(50), 'Drill', -1)"
    ),
    "interruptions_recovery_seconds_not_negative": (
        "INSERT INTO interruptions VALUES (101, pg_temp.at(50), 'Drill', 0, -1)"
    ),
    "checkpoints_seq_positive": (
        f"{_CHECKPOINT} 0, 101, 1, 'Checkpoint', 1, 'u', {_HASH}, pg_temp.at(50), NULL, NULL)"
    ),
    "checkpoints_kind_known": (
        f"{_CHECKPOINT} 1, 101, 1, 'Dump', 1, 'u', {_HASH}, pg_temp.at(50), NULL, NULL)"
    ),
    "checkpoints_bytes_not_negative": (
        f"{_CHECKPOINT} 1, 101, 1, 'Checkpoint', -1, 'u', {_HASH}, pg_temp.at(50), NULL, NULL)"
    ),
    "checkpoints_sha256_length": (
        f"{_CHECKPOINT} 1, 101, 1, 'Checkpoint', 1, 'u', '\\x00', pg_temp.at(50), NULL, NULL)"
    ),
    "checkpoints_cursor_whole": (
        f"{_CHECKPOINT} 1, 101, 1, 'Checkpoint', 1, 'u', {_HASH}, pg_temp.at(50), 1, NULL)"
    ),
    "checkpoints_cursor_completed_within_total": (
        f"{_CHECKPOINT} 1, 101, 1, 'Checkpoint', 1, 'u', {_HASH}, pg_temp.at(50), 2, 1)"
    ),
    "machines_market_known": f"{_MACHINE} 'auction', 'Requested', pg_temp.at(0), NULL, NULL, NULL)",
    "machines_state_known": f"{_MACHINE} 'spot', 'Odd', pg_temp.at(0), NULL, NULL, NULL)",
    "machines_gone": f"{_MACHINE} 'spot', 'Gone', pg_temp.at(0), NULL, NULL, NULL)",
    "machines_handle": f"{_MACHINE} 'spot', 'Granted', pg_temp.at(0), NULL, 'h', NULL)",
    "machines_warm": f"{_MACHINE} 'spot', 'Requested', pg_temp.at(0), NULL, NULL, pg_temp.at(9))",
    "leases_fence_positive": f"{_LEASE} (202, 102, 0, 'first', {_HELD}, 0.1, false, {_TOKEN})",
    "leases_role_known": f"{_LEASE} (202, 102, 1, 'spare', {_HELD}, 0.1, false, {_TOKEN})",
    "leases_held_not_empty": (  # SC-608
        "UPDATE leases SET held = tstzrange(lower(held), lower(held)) WHERE machine = 201"
    ),
    "leases_token_sha256_length": f"{_LEASE} (202, 102, 1, 'first', {_HELD}, 0.1, false, '\\x00')",
    "runner_reports_n_positive": f"{_REPORT} 0, 'started', pg_temp.at(40), pg_temp.at(40), '{{}}')",
    "runner_reports_kind_known": f"{_REPORT} 1, 'sang', pg_temp.at(40), pg_temp.at(40), '{{}}')",
    "cost_segments_seq_not_negative": (
        f"{_SEGMENT} (101, 201, -1, 'Boot', pg_temp.at(20), pg_temp.at(40), false, 0.1, 0)"
    ),
    "cost_segments_segment_known": (
        f"{_SEGMENT} (101, 201, 0, 'Lunch', pg_temp.at(20), pg_temp.at(40), false, 0.1, 0)"
    ),
    "cost_segments_not_empty": (
        f"{_SEGMENT} (101, 201, 0, 'Boot', pg_temp.at(20), pg_temp.at(20), false, 0.1, 0)"
    ),
    "idle_time_not_empty": (
        "INSERT INTO idle_time VALUES (201, pg_temp.at(20), pg_temp.at(20), 0.1, 0)"
    ),
    "holds_captured_within_amount": (
        "INSERT INTO holds (attempt, organization, amount, captured) VALUES (101, 'default', 1, 2)"
    ),
    "fund_entries_kind_known": (
        "INSERT INTO fund_entries (organization, kind, amount) VALUES ('default', 'Gift', 1)"
    ),
    "project_quotas_max_count_not_negative": (
        "INSERT INTO project_quotas VALUES ('default', 'h100', -1)"
    ),
    "leader_one_row": "INSERT INTO leader (one) VALUES (false)",
    "leader_heartbeat_one_row": "INSERT INTO leader_heartbeat VALUES (false, pg_temp.at(0))",
    "attempt_objects_head": (
        "SELECT publish(ARRAY[101]::bigint[], ARRAY['{}'::bytea], ARRAY['{}'::jsonb])"
    ),
}

# More ways to break a rule above, and the keys: what it is, the rule's name, the statements.
STATES: list[tuple[str, str, tuple[str, ...]]] = [
    (
        "a second live attempt in a slot",
        "attempts_one_live",
        (f"{_ATTEMPT} 'x', pg_temp.w(), '0', 2, 'Pending', pg_temp.at(0), NULL, NULL)",),
    ),
    (
        "a reused epoch",
        "attempts_workload_slot_epoch_key",
        (
            f"{_ATTEMPT} 'x', pg_temp.w(), '2', 1, 'Stopped', pg_temp.at(0), 'Stopped',"
            " pg_temp.at(1))",
        ),
    ),
    (
        "a reused name",
        "attempts_project_name_key",
        (
            f"{_ATTEMPT} 'train-0', pg_temp.w(), '2', 2, 'Stopped', pg_temp.at(0), 'Stopped',"
            " pg_temp.at(1))",
        ),
    ),
    (
        "Starting without billing",
        "attempts_milestones",
        ("UPDATE attempts SET stage = 'Starting', acquired = pg_temp.at(9) WHERE no = 102",),
    ),
    (
        "Failed without a reason",
        "attempts_reason",
        ("UPDATE attempts SET reason = NULL WHERE no = 103",),
    ),
    (
        "Stopped with the reason Preempted",
        "attempts_reason",
        (
            "UPDATE attempts SET stage = 'Stopped', reason = 'Preempted', finished = pg_temp.at(50)"
            " WHERE no = 101",
        ),
    ),
    (
        "Running with a reason",
        "attempts_reason",
        ("UPDATE attempts SET reason = 'Preempted' WHERE no = 101",),
    ),
    (
        "signal 9 with exit code 9",
        "attempts_exit",
        ("UPDATE attempts SET signal = 9, exit_code = 9 WHERE no = 103",),
    ),
    (
        "waiting past Placing",
        "attempts_waiting",
        ("UPDATE attempts SET waiting_for = 'Funds' WHERE no = 101",),
    ),
    (
        "deletion proven before the end",
        "attempts_order",
        ("UPDATE attempts SET deletion_proven = pg_temp.at(99) WHERE no = 103",),
    ),
    (
        "deletion proven of a live attempt",
        "attempts_milestones",
        ("UPDATE attempts SET deletion_proven = pg_temp.at(99) WHERE no = 101",),
    ),
    (
        "Acquiring without an offering",
        "attempts_placed",
        (
            "UPDATE attempts SET stage = 'Acquiring', acquired = pg_temp.at(9) WHERE no = 102",
            "SELECT pg_temp.publish(ARRAY[102], 'second')",
        ),
    ),
    (
        "superseded by a missing attempt",
        "attempts_workload_slot_superseded_by_fkey",
        (
            "UPDATE attempts SET superseded_by = 2 WHERE no = 103",
            "SELECT pg_temp.publish(ARRAY[103], 'second')",
        ),
    ),
    (
        "an attempt of a workload in another project",
        "attempts_workload_project_fkey",
        (
            "INSERT INTO projects (name) VALUES ('other')",
            "UPDATE attempts SET project = 'other' WHERE no = 102",
        ),
    ),
    (
        "an attempt changed without publishing",
        "attempts_published",
        ("UPDATE attempts SET waiting_for = 'Funds' WHERE no = 102",),
    ),
    (
        "an attempt touched without change and without publishing",
        "attempts_published",
        ("UPDATE attempts SET waiting_for = waiting_for WHERE no = 102",),
    ),
    (
        "a new attempt never published",
        "attempts_published",
        (
            f"{_ATTEMPT} 'x', pg_temp.w(), '2', 2, 'Stopped', pg_temp.at(0), 'Stopped',"
            " pg_temp.at(1))",
        ),
    ),
    (
        "a placement changed without publishing",
        "attempts_published",
        ("UPDATE placements SET candidates = 7 WHERE attempt = 101",),
    ),
    (
        "a placement removed without publishing",
        "attempts_published",
        ("DELETE FROM placements WHERE attempt = 103",),
    ),
    (
        "a rejection written without publishing",
        "attempts_published",
        ("INSERT INTO placement_rejections VALUES (101, 0, 'gpu-8', 'NoCapacity')",),
    ),
    (
        "a checkpoint written without publishing",
        "attempts_published",
        (f"{_CHECKPOINT} 1, 101, 1, 'Checkpoint', 1, 'u', {_HASH}, pg_temp.at(50), NULL, NULL)",),
    ),
    (
        "an interruption written without publishing",
        "attempts_published",
        ("INSERT INTO interruptions VALUES (101, pg_temp.at(50), 'Drill', 0)",),
    ),
    (
        "a cost segment written without publishing",
        "attempts_published",
        (f"{_SEGMENT} (101, 201, 0, 'Boot', pg_temp.at(20), pg_temp.at(40), false, 0.1, 0)",),
    ),
    (
        "an overlapping cost segment",
        "cost_segments_chain",
        (
            f"{_SEGMENT} (103, 203, 3, 'Teardown', pg_temp.at(110), pg_temp.at(130), true, 0.1, 0)",
            "SELECT pg_temp.publish(ARRAY[103], 'second')",
        ),
    ),
    (
        "a cost segment after a hole in time",
        "cost_segments_chain",
        (
            f"{_SEGMENT} (103, 203, 3, 'Teardown', pg_temp.at(121), pg_temp.at(130), true, 0.1, 0)",
            "SELECT pg_temp.publish(ARRAY[103], 'second')",
        ),
    ),
    (
        "a cost segment after a hole in the chain",
        "cost_segments_chain",
        (
            f"{_SEGMENT} (103, 203, 4, 'Teardown', pg_temp.at(120), pg_temp.at(130), true, 0.1, 0)",
            "SELECT pg_temp.publish(ARRAY[103], 'second')",
        ),
    ),
    (
        "a cost segment of a machine the attempt never leased",
        "cost_segments_attempt_machine_fkey",
        (f"{_SEGMENT} (103, 202, 0, 'Boot', pg_temp.at(20), pg_temp.at(40), true, 0.1, 0)",),
    ),
    (
        "a checkpoint sequence with a hole",
        "checkpoints_workload_slot_prev_fkey",
        (
            f"{_CHECKPOINT} 2, 101, 1, 'Checkpoint', 1, 'u', {_HASH}, pg_temp.at(50), NULL, NULL)",
            "SELECT pg_temp.publish(ARRAY[101], 'second')",
        ),
    ),
    (
        "a machine leased twice at once",
        "leases_int8range_held_excl",
        (f"{_LEASE} (201, 102, 2, 'first', {_HELD}, 0.1, false, {_TOKEN})",),
    ),
    (
        "both machines of a hedge won",
        "leases_one_winner",
        (f"{_LEASE} (202, 101, 1, 'hedge', {_HELD}, 0.1, true, {_TOKEN})",),
    ),
    (
        "two machines in the same role",
        "leases_one_a_role",
        (f"{_LEASE} (202, 101, 1, 'first', {_HELD}, 0.1, false, {_TOKEN})",),
    ),
    (
        "a lease with a negative rate",
        "usd_not_negative",
        ("UPDATE leases SET rate = -0.1 WHERE machine = 201",),
    ),
    (
        "an unknown state of a slot",
        "slots_state_known",
        ("UPDATE slots SET state = 'Odd'",),
    ),
    (
        "the same rank of a gang twice",
        "attempts_gang",
        (f"{_GANG} ('g', 1, 0, 2) WHERE no IN (101, 102)",),
    ),
    (
        "a command's key twice",
        "commands_key_key",
        (
            "INSERT INTO commands (key, project, verb, target, body, asked_by)"
            " SELECT 'k', 'default', 'stop', 't', '{}', 'a' FROM generate_series(1, 2)",
        ),
    ),
]

# Refused in words of a function, not by a named rule: what it is, the words, the statements.
WORDS: list[tuple[str, str, tuple[str, ...]]] = [
    (
        "retire of a live attempt",
        "an attempt is live or still holds a machine",
        ("SELECT retire(ARRAY[101]::bigint[], ARRAY['x'::bytea])",),
    ),
    (
        "retire of an attempt whose machine is still held",
        "an attempt is live or still holds a machine",
        (
            "UPDATE attempts SET stage = 'Succeeded', exit_code = 0, finished = pg_temp.at(100)"
            " WHERE no = 101",
            "SELECT pg_temp.publish(ARRAY[101], 'second')",
            "SELECT retire(ARRAY[101]::bigint[], ARRAY['x'::bytea])",
        ),
    ),
    (
        "retire of a missing attempt",
        "retire: 1 attempts given, 0 found",
        ("SELECT retire(ARRAY[999]::bigint[], ARRAY['x'::bytea])",),
    ),
    (
        "publish of a missing attempt",
        "publish: 1 attempts given, 0 found",
        ("SELECT pg_temp.publish(ARRAY[999], 'x')",),
    ),
    (
        "publish of more than 1,000 attempts",
        "at most 1000",
        ("SELECT publish(array_agg(n), '{}', '{}') FROM generate_series(1::bigint, 1001) n",),
    ),
    (
        "retire of more than 1,000 attempts",
        "at most 1000",
        ("SELECT retire(array_agg(n), '{}') FROM generate_series(1::bigint, 1001) n",),
    ),
    (
        "a lease without a rate",
        'null value in column "rate"',
        (f"{_LEASE} (202, 102, 1, 'first', {_HELD}, NULL, false, {_TOKEN})",),
    ),
    (
        "a slot without a state",
        'null value in column "state"',
        ("UPDATE slots SET state = NULL",),
    ),
    (
        "a phase written by hand",
        'column "phase" can only be updated to DEFAULT',
        ("UPDATE attempts SET phase = 'Running' WHERE no = 101",),
    ),
]
