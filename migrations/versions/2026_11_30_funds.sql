SET search_path = nodus;
-- what was paid in, and what stood when the control of funds began: Opening + deposits = balance + held + captured
CREATE TABLE fund_entries (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, organization label63 NOT NULL REFERENCES organizations, project label63,
  kind text NOT NULL CONSTRAINT fund_entries_kind_known CHECK (kind IN ('Opening','Deposit')), amount usd NOT NULL, at timestamptz NOT NULL DEFAULT nodus.now());
CREATE INDEX fund_entries_organization ON fund_entries (organization, no);
-- a class with rows here is open to those projects alone, one without to all
CREATE TABLE offering_entitlements (offering text NOT NULL REFERENCES offering_classes ON DELETE CASCADE, project label63 NOT NULL REFERENCES projects ON DELETE CASCADE, PRIMARY KEY (offering, project));
CREATE INDEX supplier_costs_open ON supplier_costs (machine) WHERE to_ts IS NULL;
GRANT SELECT, INSERT, UPDATE, DELETE ON fund_entries, offering_entitlements TO nodus_scheduler;
-- What was charged before holds were kept counts as captured; what is not over yet gets a hold of just that, since
-- later captures are the difference to it.
INSERT INTO funds (organization) SELECT name FROM organizations ON CONFLICT DO NOTHING;
INSERT INTO holds (attempt, organization, amount, captured)
  SELECT a.no, p.organization, c.usd, c.usd FROM attempts a JOIN projects p ON p.name = a.project
  CROSS JOIN LATERAL (SELECT coalesce(sum(s.usd), 0) AS usd FROM cost_segments s WHERE s.attempt = a.no AND NOT s.covered) c
  WHERE a.deletion_proven IS NULL AND a.acquired IS NOT NULL
  ON CONFLICT (attempt) DO UPDATE SET captured = EXCLUDED.captured, amount = greatest(holds.amount, EXCLUDED.captured);
UPDATE funds f SET
  captured = (SELECT coalesce(sum(s.usd), 0) FROM cost_segments s JOIN attempts a ON a.no = s.attempt JOIN projects p ON p.name = a.project WHERE p.organization = f.organization AND NOT s.covered)
    + (SELECT coalesce(sum(w.archived_usd), 0) FROM workloads w JOIN projects p ON p.name = w.project WHERE p.organization = f.organization),
  held = (SELECT coalesce(sum(h.amount - h.captured), 0) FROM holds h WHERE h.organization = f.organization AND h.released IS NULL);
