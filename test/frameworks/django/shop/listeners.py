"""The listeners of the channels."""

import os

import pgpubsub

from shop.channels import OrderChannel
from shop.models import Order


@pgpubsub.post_insert_listener(OrderChannel)
def tell(old: None, new: Order) -> None:  # pylint: disable=unused-argument
    """Prints the text in one write, for the scenario to read."""
    os.write(1, f"heard {new.text}\n".encode())
