SET search_path = nodus;
SELECT pg_advisory_xact_lock(7237384);  -- as whoever makes or drops a partition holds
-- Documents lie whole in their rows: to compress one twice a change (object and log) was half of publish(), and a
-- server without lz4 takes 47 us for it; the log lives for two partitions, and the archive still compresses.
-- Postgres compresses or moves out only what passes the target, once a row passes 2 kB.
ALTER TABLE attempt_objects SET (toast_tuple_target = 8160);
DO $$DECLARE p regclass; BEGIN FOR p IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'nodus.changes'::regclass LOOP
  EXECUTE format('ALTER TABLE %s SET (toast_tuple_target = 8160)', p); END LOOP; END $$;
CREATE OR REPLACE FUNCTION ensure_partitions(head bigint, ahead int) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = nodus, pg_temp AS $$
DECLARE w CONSTANT bigint := 262144; k bigint; BEGIN
  FOR i IN 0 .. ahead LOOP k := head / w + i;
    IF to_regclass(format('nodus.changes_%s', to_hex(k))) IS NULL THEN
      EXECUTE format('CREATE TABLE nodus.changes_%s PARTITION OF nodus.changes FOR VALUES FROM (%s) TO (%s) WITH (autovacuum_enabled = off, toast_tuple_target = 8160)', to_hex(k), k * w, (k + 1) * w);
      EXECUTE format('REVOKE ALL ON nodus.changes_%s FROM PUBLIC, nodus_api, nodus_scheduler', to_hex(k)); END IF;
  END LOOP; END $$;
-- An Attempt is published with its ver, or its transaction does not commit. The key that said so needed an index of
-- (attempt, ver), so that no update of a document was HOT, and locked each document's row once more at the commit.
-- What the owner does to documents by hand is not watched any more; nobody else may write them.
ALTER TABLE attempts DROP CONSTRAINT attempts_published;
ALTER TABLE attempt_objects DROP CONSTRAINT attempt_objects_attempt_ver_key;
CREATE FUNCTION must_be_published() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
  PERFORM FROM nodus.attempt_objects o WHERE o.attempt = NEW.no AND o.ver = NEW.ver;
  IF NOT FOUND AND EXISTS (SELECT FROM nodus.attempts a WHERE a.no = NEW.no AND a.ver = NEW.ver) THEN
    RAISE EXCEPTION USING ERRCODE = 'foreign_key_violation', SCHEMA = 'nodus', TABLE = 'attempts', CONSTRAINT = 'attempts_published',
      MESSAGE = format('attempt %s was changed and not published', NEW.no); END IF;
  RETURN NULL; END $$;
REVOKE ALL ON FUNCTION must_be_published() FROM PUBLIC;  -- to fire it takes no right
CREATE CONSTRAINT TRIGGER attempts_published AFTER INSERT OR UPDATE ON attempts DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION must_be_published();
-- The same rule; counting to 251 within the expression took 32 us at each update of a row.
ALTER TABLE attempts DROP CONSTRAINT attempts_name_form;
ALTER TABLE attempts ADD CONSTRAINT attempts_name_form CHECK (length(name) <= 253 AND name ~ '^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$');
