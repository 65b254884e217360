"""Postgres: rows, the ordered change feed, who may read, and the embedded server."""
