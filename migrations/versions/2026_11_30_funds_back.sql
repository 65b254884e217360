SET search_path = nodus;
DROP TABLE offering_entitlements;
DROP TABLE fund_entries;
DROP INDEX supplier_costs_open;
