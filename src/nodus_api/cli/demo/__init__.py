"""`nodus demo`: whole lives on one machine, shown and then checked.

Decision. The demo's checks are assertions: what it shows is counted again from what clients see and
from what its programs wrote to a folder of their own, and a difference is an exit code of 1. So the
demo is a test of the whole product that anybody can run.
"""
