"""The local supplier passes the suite of every supplier (SC-702)."""

from tests.suppliers.conformance import Conformance


class TestLocal(Conformance):
    def shell(self, script: str) -> tuple[str, ...]:
        return ("/bin/sh", "-c", script)
