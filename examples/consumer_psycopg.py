"""Writes one bill for each order, also when the connection breaks. PGHOST, PGDATABASE, ... say where."""

import random
import time

import psycopg


def read_state(connection: psycopg.Connection) -> None:
    """This is the first start, or something is gone: do what is left to do."""
    connection.execute("INSERT INTO bill SELECT id FROM orders ORDER BY id ON CONFLICT DO NOTHING")


def handle(connection: psycopg.Connection, payload: str) -> None:
    """Do what one notification asks for."""
    connection.execute("INSERT INTO bill VALUES (%s) ON CONFLICT DO NOTHING", [payload])


def consume() -> None:
    """Listen until the connection breaks."""
    with psycopg.connect(autocommit=True) as connection:
        with connection.transaction():
            connection.execute("LISTEN herald_position")
            (complete,), = connection.execute(
                "SELECT herald.listen('orders', after => (SELECT position FROM progress FOR UPDATE))")
        if not complete:
            read_state(connection)
        payloads = []
        while True:
            # As a list: while the generator runs, the connection can do nothing else.
            for notification in list(connection.notifies(stop_after=1)):
                if notification.channel != "herald_position":
                    payloads.append(notification.payload)
                    continue
                with connection.transaction():  # the work and its position: both are stored, or none
                    for payload in payloads:
                        handle(connection, payload)
                    connection.execute("UPDATE progress SET position = %s", [notification.payload])
                payloads = []


while True:
    try:
        consume()
    except psycopg.OperationalError as problem:
        print(problem)
        time.sleep(random.random())  # so that not all consumers come back at once
