SET search_path = nodus;
-- the database clock; tests pin it: SET nodus.now = '2026-01-01T00:00:00Z'. Unqualified, now() is pg_catalog's
CREATE FUNCTION nodus.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT coalesce(nullif(current_setting('nodus.now', true), '')::timestamptz, clock_timestamp()) $$;
CREATE DOMAIN usd AS numeric(18,6) CONSTRAINT usd_not_negative CHECK (VALUE >= 0);
CREATE DOMAIN label63 AS text CONSTRAINT label63_form CHECK (VALUE ~ '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$');
-- revision space ------------------------------------------------------------------------------------------------
CREATE TABLE installation (one boolean PRIMARY KEY DEFAULT true CONSTRAINT installation_one_row CHECK (one), id uuid NOT NULL DEFAULT gen_random_uuid(), continue_key bytea NOT NULL DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
CREATE TABLE runner_key (one boolean PRIMARY KEY DEFAULT true CONSTRAINT runner_key_one_row CHECK (one), key bytea NOT NULL DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));  -- SC-125; the scheduler alone reads it
CREATE TABLE feed (one boolean PRIMARY KEY DEFAULT true CONSTRAINT feed_one_row CHECK (one), epoch int NOT NULL CONSTRAINT feed_epoch_range CHECK (epoch BETWEEN 0 AND 524286), timeline text NOT NULL, sysid bigint NOT NULL, oldest bigint NOT NULL);
CREATE TABLE feed_epochs (epoch int PRIMARY KEY, first_rev bigint NOT NULL, prev_last bigint NOT NULL, timeline text NOT NULL, sysid bigint NOT NULL, began timestamptz NOT NULL DEFAULT nodus.now(), CONSTRAINT feed_epochs_first_rev_in_epoch CHECK (first_rev >> 44 = epoch), CONSTRAINT feed_epochs_prev_last_before_first CHECK (prev_last < first_rev));
CREATE TABLE changes (rev bigint NOT NULL CONSTRAINT changes_rev_positive CHECK (rev > 0), kind "char" NOT NULL CONSTRAINT changes_kind_known CHECK (kind IN ('A','M','D','E')), uid uuid, project text, name text, ver bigint,
  at timestamptz NOT NULL DEFAULT nodus.now(), tx xid8 NOT NULL DEFAULT pg_current_xact_id(), sel jsonb, prev_sel jsonb, prev_rev bigint CONSTRAINT changes_prev_rev_older CHECK (prev_rev < rev), prev_doc bytea, doc bytea, PRIMARY KEY (rev),
  CONSTRAINT changes_marker_without_object CHECK ((kind = 'E') = (uid IS NULL)), CONSTRAINT changes_object_whole CHECK (num_nulls(uid, project, name, ver, sel, doc) IN (0, 6)), CONSTRAINT changes_prev_rev_given CHECK ((kind IN ('M','D')) = (prev_rev IS NOT NULL))) PARTITION BY RANGE (rev);
-- a partition grants nothing to anybody: both roles go through the parent
CREATE FUNCTION ensure_partitions(head bigint, ahead int) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = nodus, pg_temp AS $$
DECLARE w CONSTANT bigint := 262144; k bigint; BEGIN
  FOR i IN 0 .. ahead LOOP k := head / w + i;
    IF to_regclass(format('nodus.changes_%s', to_hex(k))) IS NULL THEN
      EXECUTE format('CREATE TABLE nodus.changes_%s PARTITION OF nodus.changes FOR VALUES FROM (%s) TO (%s) WITH (autovacuum_enabled = off)', to_hex(k), k * w, (k + 1) * w);
      EXECUTE format('REVOKE ALL ON nodus.changes_%s FROM PUBLIC, nodus_api, nodus_scheduler', to_hex(k)); END IF;
  END LOOP; END $$;
SELECT ensure_partitions(1, 2);
INSERT INTO installation DEFAULT VALUES; INSERT INTO runner_key DEFAULT VALUES;
INSERT INTO feed SELECT true, 0, substr(pg_walfile_name(pg_current_wal_insert_lsn()),1,8), system_identifier, 1 FROM pg_control_system();
INSERT INTO feed_epochs SELECT 0, 1, 0, timeline, sysid FROM feed; INSERT INTO changes (rev, kind) VALUES (1, 'E');
-- locks the feed until commit; returns the head of the log; starts a new epoch when the server's timeline is not the stored one
CREATE FUNCTION lock_feed() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = nodus, pg_temp AS $$
DECLARE f nodus.feed; t text; h bigint; BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE EXCEPTION 'the feed needs READ COMMITTED'; END IF;
  SELECT * INTO STRICT f FROM nodus.feed FOR UPDATE;
  SELECT max(rev) INTO STRICT h FROM nodus.changes;
  t := substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8);
  IF t <> f.timeline THEN
    INSERT INTO nodus.feed_epochs VALUES (f.epoch + 1, (f.epoch + 1)::bigint << 44, h, t, f.sysid);
    UPDATE nodus.feed SET epoch = f.epoch + 1, timeline = t;
    h := (f.epoch + 1)::bigint << 44; PERFORM nodus.ensure_partitions(h, 1); INSERT INTO nodus.changes (rev, kind) VALUES (h, 'E');
  END IF; RETURN h; END $$;
-- the leader moves the edge of what is promised before it drops partitions; another system (a restored dump) or an operator's word starts an epoch
CREATE FUNCTION advance_oldest(r bigint) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = nodus, pg_temp AS $$ UPDATE feed SET oldest = r WHERE r > oldest $$;
CREATE FUNCTION start_epoch(force boolean) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = nodus, pg_temp AS $$
DECLARE h bigint := lock_feed(); f nodus.feed; s bigint; BEGIN
  SELECT * INTO STRICT f FROM feed; SELECT system_identifier INTO s FROM pg_control_system();
  IF force OR s <> f.sysid THEN
    INSERT INTO feed_epochs VALUES (f.epoch + 1, (f.epoch + 1)::bigint << 44, h, f.timeline, s); UPDATE feed SET epoch = f.epoch + 1, sysid = s;
    h := (f.epoch + 1)::bigint << 44; PERFORM ensure_partitions(h, 1); INSERT INTO changes (rev, kind) VALUES (h, 'E');
  END IF; RETURN h; END $$;
-- who may read, in stand-alone mode; access_changes is what replicas follow -----------------------------------------
CREATE TABLE organizations (name label63 PRIMARY KEY);
CREATE TABLE projects (name label63 PRIMARY KEY, uid uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(), organization label63 NOT NULL DEFAULT 'default' REFERENCES organizations, created timestamptz NOT NULL DEFAULT nodus.now(), access_rev bigint NOT NULL DEFAULT 0);
CREATE TABLE project_members (project label63 NOT NULL REFERENCES projects ON DELETE CASCADE, subject_kind text NOT NULL CONSTRAINT project_members_subject_kind_known CHECK (subject_kind IN ('user','group')), subject text NOT NULL,
  role text NOT NULL CONSTRAINT project_members_role_known CHECK (role IN ('viewer','editor','admin')), PRIMARY KEY (project, subject_kind, subject));
CREATE TABLE tokens (id text PRIMARY KEY CONSTRAINT tokens_id_form CHECK (id ~ '^[a-z2-7]{12}$'), secret_sha256 bytea NOT NULL CONSTRAINT tokens_secret_sha256_length CHECK (octet_length(secret_sha256) = 32), username text NOT NULL CONSTRAINT tokens_username_not_system CHECK (username !~ '^system:'), groups text[] NOT NULL DEFAULT '{}',
  scopes text[] NOT NULL DEFAULT '{}', created timestamptz NOT NULL DEFAULT nodus.now(), expires timestamptz, revoked timestamptz);
CREATE TABLE token_uses (id text PRIMARY KEY REFERENCES tokens ON DELETE CASCADE, last_used timestamptz NOT NULL);
CREATE TABLE access_changes (rev bigint PRIMARY KEY CONSTRAINT access_changes_rev_positive CHECK (rev > 0), what text NOT NULL CONSTRAINT access_changes_what_known CHECK (what IN ('project','member','token')), key text NOT NULL, deleted boolean NOT NULL, project_uid uuid, at timestamptz NOT NULL DEFAULT nodus.now());
-- what is wanted ------------------------------------------------------------------------------------------------
CREATE TABLE workloads (uid uuid PRIMARY KEY, project label63 NOT NULL REFERENCES projects, kind text NOT NULL CONSTRAINT workloads_kind_known CHECK (kind IN ('Job','Sandbox','Workspace','Function','Agent','Build','Import')), name label63 NOT NULL,
  spec jsonb NOT NULL, state text NOT NULL DEFAULT 'Active' CONSTRAINT workloads_state_known CHECK (state IN ('Active','Suspended','Stopped','Succeeded','Failed','Deleted')), outcome text, archived_usd usd NOT NULL DEFAULT 0, created timestamptz NOT NULL, ended timestamptz, UNIQUE (uid, project));
CREATE UNIQUE INDEX workloads_name ON workloads (project, kind, name) WHERE state <> 'Deleted';
CREATE TABLE slots (workload uuid NOT NULL REFERENCES workloads ON DELETE CASCADE, slot text NOT NULL CONSTRAINT slots_slot_form CHECK (slot ~ '^([0-9]{1,9}|build|import)$'), wanted boolean NOT NULL DEFAULT true, current_epoch int NOT NULL DEFAULT 0 CONSTRAINT slots_current_epoch_not_negative CHECK (current_epoch >= 0),
  last_seq bigint NOT NULL DEFAULT 0 CONSTRAINT slots_last_seq_not_negative CHECK (last_seq >= 0), retries_used int NOT NULL DEFAULT 0, replacements int NOT NULL DEFAULT 0, backoff_k int NOT NULL DEFAULT 0, nodus_failures int NOT NULL DEFAULT 0, lost_in_a_row int NOT NULL DEFAULT 0,
  lost_candidates jsonb NOT NULL DEFAULT '[]', not_before timestamptz, state text NOT NULL DEFAULT 'Open' CONSTRAINT slots_state_known CHECK (state IN ('Open','Succeeded','Failed','Stopped','Suspended','Unfunded')), PRIMARY KEY (workload, slot));
CREATE TABLE commands (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL UNIQUE, project label63 NOT NULL REFERENCES projects, verb text NOT NULL CONSTRAINT commands_verb_known CHECK (verb IN ('submit','stop','suspend','resume','scale','delete','drill')),
  kind text, target text NOT NULL, body jsonb NOT NULL, asked_by text NOT NULL, asked timestamptz NOT NULL DEFAULT nodus.now(), applied timestamptz, outcome text, message text, CONSTRAINT commands_applied_with_outcome CHECK ((applied IS NULL) = (outcome IS NULL)));
CREATE INDEX commands_open ON commands (no) WHERE applied IS NULL;
CREATE TABLE drill_schedules (project label63 PRIMARY KEY REFERENCES projects ON DELETE CASCADE, trigger text NOT NULL, per_hour numeric(9,4) NOT NULL CONSTRAINT drill_schedules_per_hour_positive CHECK (per_hour > 0), seed bigint NOT NULL, next_at timestamptz);
-- what can be rented: classes are public, supplier offers never leave the scheduler ----------------------------------
CREATE TABLE offering_classes (name text PRIMARY KEY, accelerator text, form text, count int NOT NULL CONSTRAINT offering_classes_count_not_negative CHECK (count >= 0), accelerator_memory_gib numeric(10,2), vcpus numeric(10,2) NOT NULL, memory_gib numeric(10,2) NOT NULL, disk_gib numeric(10,2) NOT NULL,
  arch text NOT NULL, region_class text NOT NULL CONSTRAINT offering_classes_region_class_known CHECK (region_class IN ('us','ca','eu','uk','in','jp','sg','au','me','sa','af','other')), gang_capable boolean NOT NULL, rate_on_demand usd NOT NULL, rate_spot usd, enabled boolean NOT NULL DEFAULT true,
  retired boolean NOT NULL DEFAULT false, speed numeric(9,4) NOT NULL CONSTRAINT offering_classes_speed_positive CHECK (speed > 0), reference_rate usd NOT NULL, CONSTRAINT offering_classes_count_with_accelerator CHECK ((count = 0) = (accelerator IS NULL)));
CREATE TABLE supplier_offers (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, class text NOT NULL REFERENCES offering_classes, supplier text NOT NULL, instance_type text NOT NULL, region text NOT NULL, zone text NOT NULL DEFAULT '', cost_on_demand usd NOT NULL, cost_spot usd,
  billing_increment_seconds int NOT NULL DEFAULT 1 CONSTRAINT supplier_offers_increment_positive CHECK (billing_increment_seconds > 0), minimum_seconds int NOT NULL DEFAULT 0, quota int, credentials_ref text, enabled boolean NOT NULL DEFAULT true, UNIQUE (supplier, instance_type, region, zone));
CREATE TABLE offering_stats (offer bigint NOT NULL REFERENCES supplier_offers ON DELETE CASCADE, market text NOT NULL CONSTRAINT offering_stats_market_known CHECK (market IN ('on-demand','spot')), stats jsonb NOT NULL, available int CONSTRAINT offering_stats_available_not_negative CHECK (available >= 0), failures_in_row int NOT NULL DEFAULT 0,
  backoff_until timestamptz, updated timestamptz NOT NULL, PRIMARY KEY (offer, market));
-- attempts: 1:1 facts are columns, so that a CHECK can see them together; what no reader sees lives in attempt_work ------
CREATE TABLE attempts (
  no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, uid uuid NOT NULL UNIQUE, project label63 NOT NULL, name text NOT NULL CONSTRAINT attempts_name_form CHECK (name ~ '^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$'),
  workload uuid NOT NULL, slot text NOT NULL, epoch int NOT NULL CONSTRAINT attempts_epoch_positive CHECK (epoch > 0), superseded_by int CONSTRAINT attempts_superseded_by_next_epoch CHECK (superseded_by = epoch + 1),
  gang text, gang_epoch int CONSTRAINT attempts_gang_epoch_positive CHECK (gang_epoch > 0), gang_rank int, gang_size int, resumes boolean NOT NULL DEFAULT false, restore_seq bigint, cursor_completed bigint, cursor_total bigint, restore_bytes bigint CONSTRAINT attempts_restore_bytes_not_negative CHECK (restore_bytes >= 0),
  stage text NOT NULL CONSTRAINT attempts_stage_known CHECK (stage IN ('Pending','Placing','Acquiring','Starting','Running','Succeeded','Failed','Lost','Stopped')),
  phase text GENERATED ALWAYS AS (CASE stage WHEN 'Pending' THEN 'Queued' WHEN 'Placing' THEN 'Queued' WHEN 'Acquiring' THEN 'Provisioning' WHEN 'Starting' THEN 'Provisioning'
    WHEN 'Lost' THEN 'Failed' WHEN 'Stopped' THEN 'Cancelled' ELSE stage END) STORED,
  reason text, exit_code int CONSTRAINT attempts_exit_code_range CHECK (exit_code BETWEEN 0 AND 255), signal int CONSTRAINT attempts_signal_range CHECK (signal BETWEEN 1 AND 64), waiting_for text CONSTRAINT attempts_waiting_for_known CHECK (waiting_for IN ('Funds','Quota','Backoff','Gang','Capacity','Loop')), waiting_message text,
  queued timestamptz NOT NULL, acquired timestamptz, billing_start timestamptz, registered timestamptz, command_started timestamptz, finished timestamptz, deletion_proven timestamptz,
  pull_seconds int CONSTRAINT attempts_pull_seconds_not_negative CHECK (pull_seconds >= 0), ver bigint NOT NULL DEFAULT 1,
  needs_offering bigint GENERATED ALWAYS AS (CASE WHEN stage IN ('Acquiring','Starting','Running','Succeeded') THEN no END) STORED,
  UNIQUE (project, name), UNIQUE (workload, slot, epoch),
  FOREIGN KEY (workload, project) REFERENCES workloads (uid, project), FOREIGN KEY (workload, slot) REFERENCES slots,
  FOREIGN KEY (workload, slot, superseded_by) REFERENCES attempts (workload, slot, epoch) DEFERRABLE INITIALLY DEFERRED,
  CONSTRAINT attempts_gang_whole CHECK (num_nulls(gang, gang_epoch, gang_rank, gang_size) IN (0, 4)), CONSTRAINT attempts_gang_rank_below_size CHECK (gang_rank >= 0 AND gang_rank < gang_size),
  CONSTRAINT attempts_cursor_whole CHECK (num_nulls(cursor_completed, cursor_total) IN (0, 2)), CONSTRAINT attempts_cursor_completed_within_total CHECK (cursor_completed BETWEEN 0 AND cursor_total), CONSTRAINT attempts_cursor_with_restore CHECK (cursor_total IS NULL OR restore_seq IS NOT NULL), CONSTRAINT attempts_restore_only_if_resumes CHECK (restore_seq IS NULL OR resumes),
  CONSTRAINT attempts_ended CHECK ((stage IN ('Succeeded','Failed','Lost','Stopped')) = (finished IS NOT NULL)),
  CONSTRAINT attempts_reason CHECK (CASE stage WHEN 'Lost' THEN reason IN ('Preempted','NodeLost','ReadinessFailed','StartupTimeout') WHEN 'Stopped' THEN reason IN ('Stopped','Suspended','Unfunded','MaxCostReached','Released')
    WHEN 'Failed' THEN reason IN ('Unplaceable','NoCapacity','CustomerExit','OutOfMemory','DeadlineExceeded','ImagePullFailed','StartFailed','RestoreFailed','CheckpointUnavailable','InternalError') ELSE reason IS NULL END IS TRUE),
  CONSTRAINT attempts_exit CHECK ((exit_code IS NULL OR (finished IS NOT NULL AND command_started IS NOT NULL)) AND (stage <> 'Succeeded' OR exit_code = 0) AND (signal IS NULL OR exit_code = 128 + signal)),
  CONSTRAINT attempts_milestones CHECK ((stage NOT IN ('Acquiring','Starting','Running','Succeeded') OR acquired IS NOT NULL) AND (stage NOT IN ('Starting','Running','Succeeded') OR billing_start IS NOT NULL)
    AND (stage NOT IN ('Running','Succeeded') OR command_started IS NOT NULL) AND (stage IN ('Running','Succeeded','Failed','Lost','Stopped') OR command_started IS NULL) AND (stage NOT IN ('Pending','Placing','Acquiring') OR billing_start IS NULL)
    AND (command_started IS NULL OR registered IS NOT NULL) AND (deletion_proven IS NULL OR finished IS NOT NULL)),
  CONSTRAINT attempts_waiting CHECK ((waiting_for IS NULL OR stage IN ('Pending','Placing')) AND (waiting_message IS NULL OR waiting_for IS NOT NULL)),
  CONSTRAINT attempts_order CHECK (acquired >= queued AND billing_start >= acquired AND registered >= billing_start AND command_started >= registered AND finished >= GREATEST(queued, acquired, billing_start, registered, command_started) AND deletion_proven >= finished),
  CONSTRAINT attempts_seconds CHECK (date_trunc('second', queued) = queued AND date_trunc('second', acquired) = acquired AND date_trunc('second', billing_start) = billing_start AND date_trunc('second', registered) = registered
    AND date_trunc('second', command_started) = command_started AND date_trunc('second', finished) = finished AND date_trunc('second', deletion_proven) = deletion_proven)) WITH (fillfactor = 80);
CREATE UNIQUE INDEX attempts_one_live ON attempts (workload, slot) WHERE finished IS NULL;
CREATE UNIQUE INDEX attempts_gang ON attempts (gang, gang_epoch, gang_rank) WHERE gang IS NOT NULL;
CREATE INDEX attempts_live ON attempts (no) WHERE deletion_proven IS NULL;
CREATE INDEX attempts_expire ON attempts (finished) WHERE finished IS NOT NULL;
CREATE TABLE attempt_work (attempt bigint PRIMARY KEY REFERENCES attempts ON DELETE CASCADE, next_try timestamptz, limit_at timestamptz, start_deadline timestamptz, drain_cause text, drain_signalled timestamptz, drain_deadline timestamptz, last_heartbeat timestamptz, suspect_since timestamptz,
  watermark timestamptz, accrued timestamptz, warned timestamptz, drill text, drill_at timestamptz) WITH (fillfactor = 70);
CREATE TABLE placements (attempt bigint PRIMARY KEY REFERENCES attempts ON DELETE CASCADE, profile text NOT NULL CONSTRAINT placements_profile_known CHECK (profile IN ('Balanced','Cost','Speed')), candidates int NOT NULL CONSTRAINT placements_candidates_not_negative CHECK (candidates >= 0),
  offering text REFERENCES offering_classes, market text CONSTRAINT placements_market_known CHECK (market IN ('on-demand','spot')), rate usd, hedged boolean, warm_reuse boolean, scores jsonb CONSTRAINT placements_scores_object CHECK (jsonb_typeof(scores) = 'object'), fallbacks text[] CONSTRAINT placements_fallbacks_at_most_5 CHECK (cardinality(fallbacks) <= 5),
  predicted_usd usd, predicted_hours numeric(18,6) CONSTRAINT placements_predicted_hours_not_negative CHECK (predicted_hours >= 0), predicted_rate numeric(18,6) CONSTRAINT placements_predicted_rate_not_negative CHECK (predicted_rate >= 0),
  placed bigint GENERATED ALWAYS AS (CASE WHEN offering IS NOT NULL THEN attempt END) STORED UNIQUE,
  CONSTRAINT placements_all_or_none CHECK (num_nulls(offering, market, rate, hedged, warm_reuse, scores, fallbacks, predicted_usd, predicted_hours, predicted_rate) IN (0, 10)));
ALTER TABLE attempts ADD CONSTRAINT attempts_placed FOREIGN KEY (needs_offering) REFERENCES placements (placed) DEFERRABLE INITIALLY DEFERRED;
CREATE TABLE placement_rejections (attempt bigint REFERENCES placements ON DELETE CASCADE, ord smallint CONSTRAINT placement_rejections_ord_range CHECK (ord BETWEEN 0 AND 19), offering text NOT NULL, reason text NOT NULL, PRIMARY KEY (attempt, ord), UNIQUE (attempt, offering));
CREATE TABLE decisions (attempt bigint NOT NULL REFERENCES attempts ON DELETE CASCADE, n int NOT NULL CONSTRAINT decisions_n_positive CHECK (n > 0), at timestamptz NOT NULL, request jsonb NOT NULL, snapshot_id text NOT NULL, result_hash bytea NOT NULL, top jsonb NOT NULL CONSTRAINT decisions_top_at_most_5 CHECK (jsonb_array_length(top) <= 5), counters jsonb NOT NULL, PRIMARY KEY (attempt, n));
CREATE TABLE interruptions (attempt bigint PRIMARY KEY REFERENCES attempts ON DELETE CASCADE, at timestamptz NOT NULL,
  trigger text NOT NULL CONSTRAINT interruptions_trigger_known CHECK (trigger IN ('PreemptionNotice','ProviderEvidence','HeartbeatLoss','ReadinessFailed','StartupTimeout','Drill','Funding','User')), lost_seconds int NOT NULL CONSTRAINT interruptions_lost_seconds_not_negative CHECK (lost_seconds >= 0), recovery_seconds int CONSTRAINT interruptions_recovery_seconds_not_negative CHECK (recovery_seconds >= 0));
CREATE TABLE checkpoints (workload uuid NOT NULL, slot text NOT NULL, seq bigint NOT NULL CONSTRAINT checkpoints_seq_positive CHECK (seq > 0), prev bigint GENERATED ALWAYS AS (CASE WHEN seq > 1 THEN seq - 1 END) STORED, attempt bigint REFERENCES attempts ON DELETE SET NULL, epoch int NOT NULL,
  kind text NOT NULL DEFAULT 'Checkpoint' CONSTRAINT checkpoints_kind_known CHECK (kind IN ('Checkpoint','Snapshot')), bytes bigint NOT NULL CONSTRAINT checkpoints_bytes_not_negative CHECK (bytes >= 0), uri text NOT NULL, sha256 bytea NOT NULL CONSTRAINT checkpoints_sha256_length CHECK (octet_length(sha256) = 32), cursor_completed bigint, cursor_total bigint, committed timestamptz NOT NULL, deleted timestamptz,
  PRIMARY KEY (workload, slot, seq), FOREIGN KEY (workload, slot) REFERENCES slots ON DELETE CASCADE, FOREIGN KEY (workload, slot, prev) REFERENCES checkpoints DEFERRABLE INITIALLY DEFERRED,
  CONSTRAINT checkpoints_cursor_whole CHECK (num_nulls(cursor_completed, cursor_total) IN (0, 2)), CONSTRAINT checkpoints_cursor_completed_within_total CHECK (cursor_completed BETWEEN 0 AND cursor_total));
CREATE INDEX checkpoints_attempt ON checkpoints (attempt);
-- machines, who holds them, and what they cost --------------------------------------------------------------------
CREATE TABLE machines (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL UNIQUE, organization label63 NOT NULL REFERENCES organizations, offer bigint NOT NULL REFERENCES supplier_offers, offering text NOT NULL REFERENCES offering_classes, market text NOT NULL CONSTRAINT machines_market_known CHECK (market IN ('on-demand','spot')),
  state text NOT NULL CONSTRAINT machines_state_known CHECK (state IN ('Requested','Granted','Registered','Releasing','Gone')), handle text, address text, requested timestamptz NOT NULL, granted timestamptz, billing_start timestamptz, registered timestamptz, releasing timestamptz, gone timestamptz, gone_seen timestamptz,
  warm_until timestamptz, image_family text, tries int NOT NULL DEFAULT 0, next_try timestamptz, UNIQUE (offer, handle),
  CONSTRAINT machines_gone CHECK ((state = 'Gone') = (gone IS NOT NULL)), CONSTRAINT machines_handle CHECK (state NOT IN ('Granted','Registered') OR (handle IS NOT NULL AND granted IS NOT NULL AND billing_start IS NOT NULL)), CONSTRAINT machines_warm CHECK (warm_until IS NULL OR state IN ('Registered','Releasing','Gone')));
CREATE INDEX machines_open ON machines (state) WHERE state <> 'Gone';
CREATE TABLE machine_events (machine bigint NOT NULL REFERENCES machines ON DELETE CASCADE, no bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL, kind text NOT NULL, body jsonb NOT NULL, PRIMARY KEY (machine, no));
CREATE TABLE leases (machine bigint NOT NULL REFERENCES machines, attempt bigint NOT NULL REFERENCES attempts ON DELETE CASCADE, fence bigint NOT NULL CONSTRAINT leases_fence_positive CHECK (fence > 0), role text NOT NULL CONSTRAINT leases_role_known CHECK (role IN ('first','hedge')), held tstzrange NOT NULL CONSTRAINT leases_held_not_empty CHECK (NOT isempty(held)), rate usd NOT NULL,
  won boolean NOT NULL DEFAULT false, token_sha256 bytea NOT NULL UNIQUE CONSTRAINT leases_token_sha256_length CHECK (octet_length(token_sha256) = 32), last_report bigint NOT NULL DEFAULT 0, orders jsonb NOT NULL DEFAULT '[]', PRIMARY KEY (machine, fence), UNIQUE (attempt, machine),
  EXCLUDE USING gist (int8range(machine, machine, '[]') WITH &&, held WITH &&));
CREATE UNIQUE INDEX leases_one_winner ON leases (attempt) WHERE won; CREATE UNIQUE INDEX leases_one_a_role ON leases (attempt, role) WHERE upper_inf(held);
CREATE TABLE runner_reports (machine bigint NOT NULL, fence bigint NOT NULL, n bigint NOT NULL CONSTRAINT runner_reports_n_positive CHECK (n > 0), kind text NOT NULL CONSTRAINT runner_reports_kind_known CHECK (kind IN ('registered','canStart','started','heartbeat','checkpoint','notice','exited')), event_at timestamptz NOT NULL, received timestamptz NOT NULL, body jsonb NOT NULL,
  PRIMARY KEY (machine, fence, n), FOREIGN KEY (machine, fence) REFERENCES leases ON DELETE CASCADE);
CREATE TABLE cost_segments (attempt bigint NOT NULL REFERENCES attempts ON DELETE CASCADE, machine bigint NOT NULL, seq smallint NOT NULL CONSTRAINT cost_segments_seq_not_negative CHECK (seq >= 0), prev smallint GENERATED ALWAYS AS (CASE WHEN seq > 0 THEN seq - 1 END) STORED,
  segment text NOT NULL CONSTRAINT cost_segments_segment_known CHECK (segment IN ('Boot','Running','Restore','Teardown')), from_ts timestamptz NOT NULL, to_ts timestamptz NOT NULL CONSTRAINT cost_segments_not_empty CHECK (to_ts > from_ts), covered boolean NOT NULL, rate usd NOT NULL, usd usd NOT NULL,
  PRIMARY KEY (attempt, machine, seq), UNIQUE (attempt, machine, seq, to_ts), FOREIGN KEY (attempt, machine) REFERENCES leases (attempt, machine) ON DELETE CASCADE,
  CONSTRAINT cost_segments_chain FOREIGN KEY (attempt, machine, prev, from_ts) REFERENCES cost_segments (attempt, machine, seq, to_ts) DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE orphans (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, supplier text NOT NULL, handle text NOT NULL, cause text NOT NULL, found timestamptz NOT NULL, gone timestamptz, UNIQUE (supplier, handle, found));
-- money: deposits = balance + held + captured; a NULL balance means that funds are not controlled ----------------------
CREATE TABLE funds (organization label63 PRIMARY KEY REFERENCES organizations, balance usd, held usd NOT NULL DEFAULT 0, captured usd NOT NULL DEFAULT 0);
CREATE TABLE holds (attempt bigint PRIMARY KEY REFERENCES attempts ON DELETE CASCADE, organization label63 NOT NULL REFERENCES organizations, amount usd NOT NULL, captured usd NOT NULL DEFAULT 0, released timestamptz, CONSTRAINT holds_captured_within_amount CHECK (captured <= amount));
CREATE TABLE project_quotas (project label63 NOT NULL REFERENCES projects ON DELETE CASCADE, accelerator text NOT NULL, max_count int NOT NULL CONSTRAINT project_quotas_max_count_not_negative CHECK (max_count >= 0), PRIMARY KEY (project, accelerator));
CREATE TABLE supplier_costs (machine bigint NOT NULL REFERENCES machines ON DELETE CASCADE, from_ts timestamptz NOT NULL, to_ts timestamptz, rate usd NOT NULL, PRIMARY KEY (machine, from_ts));
-- one writer -----------------------------------------------------------------------------------------------------
CREATE TABLE leader (one boolean PRIMARY KEY DEFAULT true CONSTRAINT leader_one_row CHECK (one), token bigint NOT NULL DEFAULT 0, holder text, since timestamptz); INSERT INTO leader DEFAULT VALUES;
CREATE TABLE leader_heartbeat (one boolean PRIMARY KEY DEFAULT true CONSTRAINT leader_heartbeat_one_row CHECK (one), at timestamptz NOT NULL); INSERT INTO leader_heartbeat VALUES (true, nodus.now());
-- published objects, their log and the archive ----------------------------------------------------------------------
CREATE TABLE attempt_objects (attempt bigint PRIMARY KEY, uid uuid NOT NULL UNIQUE, project text NOT NULL, name text NOT NULL, ver bigint NOT NULL, rev bigint NOT NULL, sel jsonb NOT NULL, doc bytea NOT NULL,
  CONSTRAINT attempt_objects_head CHECK (substr(doc, 1, 75) = convert_to('{"apiVersion":"nodus.dev/v1","kind":"Attempt","metadata":{"resourceVersion"', 'UTF8') AND substr(doc, 76, 3) = convert_to(':""', 'UTF8')),
  UNIQUE (attempt, ver), UNIQUE (project, name)) WITH (fillfactor = 60);
ALTER TABLE attempts ADD CONSTRAINT attempts_published FOREIGN KEY (no, ver) REFERENCES attempt_objects (attempt, ver) DEFERRABLE INITIALLY DEFERRED;
CREATE TABLE attempts_archive (finished timestamptz NOT NULL, uid uuid NOT NULL, project text NOT NULL, name text NOT NULL, workload uuid NOT NULL, workload_kind text NOT NULL, workload_name text NOT NULL, slot text NOT NULL, epoch int NOT NULL, phase text NOT NULL, reason text,
  rev bigint NOT NULL, usd usd NOT NULL, ledger jsonb NOT NULL, doc bytea NOT NULL, PRIMARY KEY (finished, uid)) PARTITION BY RANGE (finished);
CREATE INDEX attempts_archive_project ON attempts_archive (project, finished); CREATE INDEX attempts_archive_uid ON attempts_archive (uid);
CREATE FUNCTION ensure_archive(m timestamptz) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = nodus, pg_temp AS $$
DECLARE a timestamp := date_trunc('month', m AT TIME ZONE 'UTC'); BEGIN
  IF to_regclass('nodus.attempts_archive_' || to_char(a, 'YYYYMM')) IS NULL THEN
    EXECUTE format('CREATE TABLE nodus.attempts_archive_%s PARTITION OF nodus.attempts_archive FOR VALUES FROM (%L) TO (%L)', to_char(a, 'YYYYMM'), a AT TIME ZONE 'UTC', (a + interval '1 month') AT TIME ZONE 'UTC');
    EXECUTE format('REVOKE ALL ON nodus.attempts_archive_%s FROM PUBLIC, nodus_api, nodus_scheduler', to_char(a, 'YYYYMM')); END IF; END $$;
-- touch: any change of the attempt row raises ver; children raise it through their parent
CREATE FUNCTION touch_self() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.ver := OLD.ver + 1; RETURN NEW; END $$;
CREATE TRIGGER touch BEFORE UPDATE ON attempts FOR EACH ROW EXECUTE FUNCTION touch_self();
CREATE FUNCTION touch_parent() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
  UPDATE nodus.attempts SET ver = ver WHERE no IN (SELECT attempt FROM changed); RETURN NULL; END $$;
DO $$DECLARE t text; BEGIN FOREACH t IN ARRAY ARRAY['placements','placement_rejections','cost_segments','checkpoints','interruptions'] LOOP
  EXECUTE format('CREATE TRIGGER touch_i AFTER INSERT ON nodus.%I REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION nodus.touch_parent()', t);
  EXECUTE format('CREATE TRIGGER touch_u AFTER UPDATE ON nodus.%I REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION nodus.touch_parent()', t);
  EXECUTE format('CREATE TRIGGER touch_d AFTER DELETE ON nodus.%I REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION nodus.touch_parent()', t);
END LOOP; END $$;
-- the only door into the log: one call per transaction, last. An unchanged document takes the new ver and no revision (LW-216)
CREATE FUNCTION publish(nos bigint[], docs bytea[], sels jsonb[]) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = nodus, pg_temp AS $$
DECLARE h bigint; n int := cardinality(nos); got int; wrote int; BEGIN
  IF n > 1000 THEN RAISE EXCEPTION 'publish: % attempts in one commit, at most 1000', n; END IF;
  h := lock_feed();
  WITH raw AS (SELECT a.no, a.uid, a.project, a.name, a.ver, u.k, u.s, u.d, o.sel AS old, o.rev AS old_rev, o.doc AS old_doc, (o.doc IS DISTINCT FROM u.d OR o.sel IS DISTINCT FROM u.s) AS differs
                 FROM unnest(nos, docs, sels) WITH ORDINALITY u(i, d, s, k) JOIN attempts a ON a.no = u.i LEFT JOIN attempt_objects o ON o.attempt = a.no),
  src AS (SELECT *, CASE WHEN differs THEN h + count(*) FILTER (WHERE differs) OVER (ORDER BY k) ELSE old_rev END AS rev FROM raw),
  up AS (INSERT INTO attempt_objects (attempt, uid, project, name, ver, rev, sel, doc) SELECT no, uid, project, name, ver, rev, s, d FROM src
         ON CONFLICT (attempt) DO UPDATE SET ver = EXCLUDED.ver, rev = EXCLUDED.rev, sel = EXCLUDED.sel, doc = EXCLUDED.doc RETURNING 1),
  log AS (INSERT INTO changes (rev, kind, uid, project, name, ver, sel, prev_sel, prev_rev, prev_doc, doc)
    SELECT rev, CASE WHEN old IS NULL THEN 'A' ELSE 'M' END::"char", uid, project, name, ver, s, CASE WHEN old IS DISTINCT FROM s THEN old END, old_rev, CASE WHEN old_rev >> 18 <> rev >> 18 THEN old_doc END, d FROM src WHERE differs RETURNING 1)
  SELECT (SELECT count(*) FROM up), (SELECT count(*) FROM log) INTO got, wrote;
  IF got <> n THEN RAISE EXCEPTION 'publish: % attempts given, % found', n, got; END IF;
  RETURN h + wrote; END $$;
-- takes finished attempts out of the API and into the archive, with their ledger
CREATE FUNCTION retire(nos bigint[], archived_docs bytea[]) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = nodus, pg_temp AS $$
DECLARE h bigint; n int := cardinality(nos); got int; BEGIN
  IF n > 1000 THEN RAISE EXCEPTION 'retire: % attempts in one commit, at most 1000', n; END IF;
  IF EXISTS (SELECT FROM attempts a WHERE a.no = ANY (nos) AND (a.finished IS NULL OR EXISTS (SELECT FROM leases l JOIN machines m ON m.no = l.machine WHERE l.attempt = a.no AND upper_inf(l.held)))) THEN
    RAISE EXCEPTION 'retire: an attempt is live or still holds a machine'; END IF;
  PERFORM ensure_archive(m) FROM (SELECT DISTINCT date_trunc('month', a.finished AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS m FROM attempts a WHERE a.no = ANY (nos)) months;
  INSERT INTO attempts_archive SELECT a.finished, a.uid, a.project, a.name, a.workload, w.kind, w.name, a.slot, a.epoch, a.phase, a.reason, o.rev, coalesce(c.charged, 0), coalesce(c.ledger, '[]'), u.d
    FROM unnest(nos, archived_docs) u(i, d) JOIN attempts a ON a.no = u.i JOIN workloads w ON w.uid = a.workload JOIN attempt_objects o ON o.attempt = a.no
    LEFT JOIN LATERAL (SELECT sum(s.usd) FILTER (WHERE NOT s.covered) AS charged, jsonb_agg(to_jsonb(s) - 'attempt' - 'prev' ORDER BY s.machine, s.seq) AS ledger FROM cost_segments s WHERE s.attempt = a.no) c ON true;
  GET DIAGNOSTICS got = ROW_COUNT; IF got <> n THEN RAISE EXCEPTION 'retire: % attempts given, % found', n, got; END IF;
  UPDATE workloads w SET archived_usd = archived_usd + t.s FROM (SELECT a.workload, sum(s.usd) AS s FROM attempts a JOIN cost_segments s ON s.attempt = a.no WHERE a.no = ANY (nos) AND NOT s.covered GROUP BY 1) t WHERE w.uid = t.workload;
  DELETE FROM attempts WHERE no = ANY (nos);
  h := lock_feed();
  WITH d AS (DELETE FROM attempt_objects WHERE attempt = ANY (nos) RETURNING *), r AS (SELECT *, h + row_number() OVER (ORDER BY attempt) AS at_rev FROM d)
  INSERT INTO changes (rev, kind, uid, project, name, ver, sel, prev_rev, doc) SELECT at_rev, 'D', uid, project, name, ver + 1, sel, rev, doc FROM r;  -- its doc is the previous one
  GET DIAGNOSTICS got = ROW_COUNT; IF got <> n THEN RAISE EXCEPTION 'retire: % attempts given, % in the log', n, got; END IF;
  RETURN h + n; END $$;
-- every change of a project, member or token takes the next access revision and wakes the replicas
CREATE FUNCTION access_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = nodus, pg_temp AS $$
DECLARE r jsonb := to_jsonb(CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END); v bigint; BEGIN
  PERFORM FROM installation FOR UPDATE; SELECT coalesce(max(rev), 0) + 1 INTO v FROM access_changes;
  INSERT INTO access_changes (rev, what, key, deleted, project_uid) VALUES (v, TG_ARGV[0], coalesce(r ->> 'id', r ->> 'project', r ->> 'name'), TG_OP = 'DELETE', (r ->> 'uid')::uuid);
  IF TG_ARGV[0] = 'project' AND TG_OP = 'INSERT' THEN UPDATE projects SET access_rev = v WHERE name = NEW.name; END IF;
  PERFORM pg_notify('nodus_access', ''); RETURN NULL; END $$;
CREATE TRIGGER changed_i AFTER INSERT OR DELETE ON projects FOR EACH ROW EXECUTE FUNCTION access_changed('project');
CREATE TRIGGER changed_i AFTER INSERT OR UPDATE OR DELETE ON project_members FOR EACH ROW EXECUTE FUNCTION access_changed('member');
CREATE TRIGGER changed_i AFTER INSERT OR UPDATE OR DELETE ON tokens FOR EACH ROW EXECUTE FUNCTION access_changed('token');
CREATE FUNCTION token_used(ids text[]) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = nodus, pg_temp AS $$
  INSERT INTO token_uses SELECT id, date_trunc('minute', nodus.now()) FROM tokens WHERE id = ANY (ids) ON CONFLICT (id) DO UPDATE SET last_used = EXCLUDED.last_used $$;
INSERT INTO organizations VALUES ('default'); INSERT INTO funds (organization) VALUES ('default'); INSERT INTO projects (name) VALUES ('default');
-- grants: the reader reads, the scheduler writes all but the log, nobody but the owner touches triggers --------------------
GRANT USAGE ON SCHEMA nodus TO nodus_api, nodus_scheduler;
GRANT SELECT ON installation, feed, feed_epochs, changes, attempt_objects, attempts_archive, leader_heartbeat, projects, project_members, tokens, access_changes TO nodus_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA nodus TO nodus_scheduler;
REVOKE INSERT, UPDATE, DELETE ON installation, runner_key, feed, feed_epochs, changes, attempt_objects, attempts_archive, access_changes FROM nodus_scheduler;
DO $$DECLARE p regclass; BEGIN FOR p IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent IN ('nodus.changes'::regclass, 'nodus.attempts_archive'::regclass) LOOP
  EXECUTE format('REVOKE ALL ON %s FROM PUBLIC, nodus_api, nodus_scheduler', p); END LOOP; END $$;
REVOKE ALL ON alembic_version FROM nodus_scheduler; GRANT SELECT ON alembic_version TO nodus_api, nodus_scheduler;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA nodus FROM PUBLIC; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA nodus TO nodus_scheduler; GRANT EXECUTE ON FUNCTION nodus.now(), token_used(text[]) TO nodus_api;
