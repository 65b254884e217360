"""FastAPI's routes: thin, each asks once and hands back an answer of the shared handlers."""
