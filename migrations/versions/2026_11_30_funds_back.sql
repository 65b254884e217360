SET search_path = nodus;
DROP TABLE offering_entitlements;
DROP TABLE fund_entries;
