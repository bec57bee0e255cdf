"""A consumer of PostgreSQL's notifications that misses nothing.

    with Consumer("dbname=shop", name="billing", channels=["orders"], handle=handle, state=state):
        ...

Consumer        psycopg 3
AsyncConsumer   psycopg 3 with asyncio; pg_herald.asyncpg.AsyncConsumer is the one for asyncpg
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import events
from ._consumer import AsyncStore, Decision, Store
from ._core import Notification
from .errors import (AuthenticationError, ConfigurationError, DatabaseMissingError, ExtensionMissingError, HandlerError,
                     HeraldError, StockServerError, StoreError, UnreachableError)

if TYPE_CHECKING:
    from .psycopg import AsyncConsumer, Consumer

__version__ = "1.0.0"

__all__ = [
    "AsyncConsumer", "AsyncStore", "AuthenticationError", "ConfigurationError", "Consumer", "DatabaseMissingError", "Decision",
    "ExtensionMissingError", "HandlerError", "HeraldError", "Notification", "StockServerError", "Store", "StoreError",
    "UnreachableError", "events",
]


def __getattr__(name: str) -> Any:
    """The consumers with psycopg, which need not be installed for asyncpg."""
    if name in ("AsyncConsumer", "Consumer"):
        from . import psycopg
        return getattr(psycopg, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
