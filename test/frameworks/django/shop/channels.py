"""The channels."""

from dataclasses import dataclass

from pgpubsub.channel import TriggerChannel

from shop.models import Order


@dataclass
class OrderChannel(TriggerChannel):
    """New orders, each handled by one listening process."""

    model = Order
    lock_notifications = True
