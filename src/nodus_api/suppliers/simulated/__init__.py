"""Machines that exist in memory alone: for tests, demonstrations and load (SC-730 to SC-733).

Decision 1: the fleet is a model of events in order of time (`fleet`, `timetable`), not tasks that
sleep. Whoever drives it says when it is; a week passes as fast as its events can be counted. Cost:
what runners send is delivered by the driver (`mail`), not by themselves.

Decision 2: the runners are simulated, not the way they report: they post to the product's report
server, in this process, with the tokens and bytes of real ones. The loop cannot tell them apart.

Decision 3: chance is a tree of named draws below the seed, and machines are named by their
Attempt, `project/owner/slot/epoch`, not by their keys, which hold a database's own ids. So one
draw never shifts another, and one seed gives the same fleet in every database.

Decision 4: a fleet lives as long as its process. Where a scheduler starts anew it finds none of
the machines of before and replaces what ran on them, as after the loss of a whole supplier.
"""

from nodus_api.suppliers.simulated.driving import drive
from nodus_api.suppliers.simulated.faults import FaultKind, FaultPlan, Scripted
from nodus_api.suppliers.simulated.fleet import Fleet
from nodus_api.suppliers.simulated.model import (
    ClassModel,
    FleetModel,
    PriceChange,
    ProgramProfile,
    Trace,
)
from nodus_api.suppliers.simulated.reports import ASGIDesk
from nodus_api.suppliers.simulated.sample import sample_fleet
from nodus_api.suppliers.simulated.supplier import SimulatedSupplier

__all__ = [
    "ASGIDesk",
    "ClassModel",
    "FaultKind",
    "FaultPlan",
    "Fleet",
    "FleetModel",
    "PriceChange",
    "ProgramProfile",
    "Scripted",
    "SimulatedSupplier",
    "Trace",
    "drive",
    "sample_fleet",
]
