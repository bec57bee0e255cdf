"""Appends each notification on a logged channel to a file, once: python3 channels_to_file.py SLOT FILE

It ends at any error; start it again then. PGHOST, PGDATABASE, ... say where the database is.
"""

import fcntl
import json
import os
import sys
import time
from typing import BinaryIO

import psycopg
from logged_channels import batches, number

START = (0, 0)


def last_position(file: BinaryIO) -> tuple[int, int]:
    """The position in the last line; removes what is behind it, a line that was not written to its end."""
    end, last = 0, None
    for line in file:
        if line.endswith(b"\n"):
            end, last = end + len(line), json.loads(line)
    file.truncate(end)
    return (number(last["lsn"]), last["index"]) if last else START


def main(slot: str, path: str) -> None:
    """Runs until an error."""
    with open(path, "a+b") as file, psycopg.connect(autocommit=True) as connection:
        fcntl.flock(file, fcntl.LOCK_EX)  # one program at a time
        file.seek(0)
        for batch in batches(connection, slot, last_position(file)):
            for notification in batch:
                file.write(json.dumps(notification._asdict()).encode() + b"\n")
            if batch:
                file.flush()
                os.fsync(file.fileno())
            else:
                time.sleep(0.2)


main(*sys.argv[1:])
