"""The local supplier passes the suite of every supplier (SC-702)."""

from tests.suppliers.conformance import Conformance


class TestLocal(Conformance):
    """Real processes on this host."""
