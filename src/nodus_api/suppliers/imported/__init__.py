"""What clouds and fleets that do not run in the loop have to offer: files become offers (SC-208).

Text in, values out: nobody asks a cloud here, and a number is never a float. A row that cannot be
believed is told with its line and its cause, and stands for nothing.
"""

from nodus_api.suppliers.imported.forms import Forms, read_forms
from nodus_api.suppliers.imported.native import read_native
from nodus_api.suppliers.imported.rows import BadFile, Listing, Rejection, Row
from nodus_api.suppliers.imported.skypilot import read_skypilot

__all__ = [
    "BadFile",
    "Forms",
    "Listing",
    "Rejection",
    "Row",
    "read_forms",
    "read_native",
    "read_skypilot",
]
