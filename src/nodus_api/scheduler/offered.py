"""What suppliers say they offer, as it is kept: the public class and the private offer (SC-203)."""

from dataclasses import fields

from nodus_api.kernel.offering import OfferingClass
from nodus_api.storage.catalog_store import Offer
from nodus_api.suppliers.supplier import OfferedClass, SupplierOffer


def kept_class(offered: OfferedClass) -> OfferingClass:
    """Return the class of an offer; whether it is enabled is for operators to say."""
    return OfferingClass(**{one.name: getattr(offered, one.name) for one in fields(OfferedClass)})


def kept_offer(offer: SupplierOffer) -> Offer:
    """Return an offer without what only our own rows tell: number, statistics, machines."""
    return Offer(
        offering=offer.offered_class.name,
        instance_type=offer.instance_type,
        region=offer.region,
        zone=offer.zone,
        cost_on_demand=offer.cost_on_demand,
        cost_spot=offer.cost_spot,
        increment=offer.increment,
        minimum=offer.minimum,
        available=None if offer.available is None else max(0, offer.available),
    )
