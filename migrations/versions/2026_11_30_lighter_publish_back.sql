SET search_path = nodus;
SELECT pg_advisory_xact_lock(7237384);
ALTER TABLE attempts DROP CONSTRAINT attempts_name_form;
ALTER TABLE attempts ADD CONSTRAINT attempts_name_form CHECK (name ~ '^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$');
DROP TRIGGER attempts_published ON attempts;
DROP FUNCTION must_be_published();
ALTER TABLE attempt_objects ADD UNIQUE (attempt, ver);
ALTER TABLE attempts ADD CONSTRAINT attempts_published FOREIGN KEY (no, ver) REFERENCES attempt_objects (attempt, ver) DEFERRABLE INITIALLY DEFERRED;
CREATE OR REPLACE FUNCTION ensure_partitions(head bigint, ahead int) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = nodus, pg_temp AS $$
DECLARE w CONSTANT bigint := 262144; k bigint; BEGIN
  FOR i IN 0 .. ahead LOOP k := head / w + i;
    IF to_regclass(format('nodus.changes_%s', to_hex(k))) IS NULL THEN
      EXECUTE format('CREATE TABLE nodus.changes_%s PARTITION OF nodus.changes FOR VALUES FROM (%s) TO (%s) WITH (autovacuum_enabled = off)', to_hex(k), k * w, (k + 1) * w);
      EXECUTE format('REVOKE ALL ON nodus.changes_%s FROM PUBLIC, nodus_api, nodus_scheduler', to_hex(k)); END IF;
  END LOOP; END $$;
DO $$DECLARE p regclass; BEGIN FOR p IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'nodus.changes'::regclass LOOP
  EXECUTE format('ALTER TABLE %s RESET (toast_tuple_target)', p); END LOOP; END $$;
ALTER TABLE attempt_objects RESET (toast_tuple_target);
