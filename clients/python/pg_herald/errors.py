"""The errors of pg_herald. Each has the driver's own error, if there is one, as its __cause__."""

from __future__ import annotations

from typing import Optional

from ._core import Notification


class HeraldError(Exception):
    """The base of all of them."""


class ConfigurationError(HeraldError):
    """An argument of the consumer is wrong, or a channel cannot be listened to."""


class UnreachableError(HeraldError):
    """No server of the list can be reached, or accepts connections."""


class AuthenticationError(HeraldError):
    """The server refuses this user or password."""


class DatabaseMissingError(HeraldError):
    """The database does not exist."""


class StoreError(HeraldError):
    """The table of the store is missing or not permitted, or load() or save() of a store of your own has failed."""


class ExtensionMissingError(HeraldError):
    """The server has pg_herald, and the database not the extension: CREATE EXTENSION pg_herald."""


class StockServerError(HeraldError):
    """The server has no pg_herald, and require is set."""


class HandlerError(HeraldError):
    """The consumer has ended: poison has decided so, or handle or state has failed too often.

    cause           the last error of your function
    notification    the notification that cannot be handled, where it is known
    """

    def __init__(self, message: str, cause: Exception, notification: Optional[Notification] = None):
        super().__init__(message)
        self.cause = cause
        self.notification = notification
