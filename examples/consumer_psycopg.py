"""Writes one bill for each order, also when the connection breaks. PGHOST, PGDATABASE, ... say where."""

import psycopg
from pg_herald import Consumer, Notification


def handle(batch: list[Notification], transaction: psycopg.Connection) -> None:
    """Do what these notifications ask for."""
    for notification in batch:
        transaction.execute("INSERT INTO bill VALUES (%s) ON CONFLICT DO NOTHING", [notification.payload])


def state(_reason: str, transaction: psycopg.Connection) -> None:
    """This is the first start, or something is gone: do what is left to do."""
    transaction.execute("INSERT INTO bill SELECT id FROM orders ORDER BY id ON CONFLICT DO NOTHING")


consumer = Consumer(name="billing", channels=["orders"], handle=handle, state=state)
consumer.create_store()
consumer.run()
