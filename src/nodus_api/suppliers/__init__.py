"""Where machines come from: one protocol, its suppliers, and the catalog they fill."""

from nodus_api.suppliers.supplier import MachineIntent, MachineView, Supplier, SupplierError

__all__ = ["MachineIntent", "MachineView", "Supplier", "SupplierError"]
