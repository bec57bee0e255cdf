"""What the two drivers of psycopg have in common."""

from __future__ import annotations

import os
import re
import socket
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

import psycopg
from psycopg.conninfo import conninfo_to_dict

from . import _options
from ._core import Collector
from ._runtime import Role
from .errors import AuthenticationError, ConfigurationError, DatabaseMissingError, HeraldError, UnreachableError

ERRORS: Tuple[Type[Exception], ...] = (psycopg.Error, OSError)  # OSError: TimeoutError as well

# libpq does not give the SQLSTATE of a failed connection, only the server's text, which may be translated.
NO_DATABASE = re.compile(r'database "[^\n]*" does not exist')
NO_ACCESS = re.compile(r"authentication failed|no pg_hba\.conf entry|no password supplied|pg_hba\.conf rejects"
                       r'|role "[^\n]*" (does not exist|is not permitted to log in)|permission denied for database'
                       r"|password (is|was) (missing|required)")

PRIMARY = "read-write"  # as target_session_attrs

# A server that has become silent is noticed in this time, also while a statement runs.
KEEPALIVES: Dict[str, object] = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
                                 "tcp_user_timeout": 25_000}
CONNECT_TIMEOUT_VARIABLE = "PGCONNECT_TIMEOUT"


def parameters(options: _options.Options, role: Role) -> Dict[str, Any]:
    """The arguments of connect(): those of the user's, and defaults that suit a consumer."""
    given = options.work_connection if role is Role.WORK else options.connection
    arguments: Dict[str, Any] = {"conninfo": given} if isinstance(given, str) else dict(given)
    arguments["autocommit"] = True
    try:
        present = conninfo_to_dict(arguments.get("conninfo", ""))
    except psycopg.ProgrammingError as problem:
        raise ConfigurationError(f"connection: {problem}") from problem
    defaults = {**KEEPALIVES, "client_encoding": "UTF8", "fallback_application_name": f"pg_herald {options.name}".rstrip()}
    if CONNECT_TIMEOUT_VARIABLE not in os.environ:
        defaults["connect_timeout"] = options.connect_timeout
    if role is Role.LISTENING_ON_PRIMARY:
        arguments["target_session_attrs"] = PRIMARY
    elif role is Role.WORK:
        if options.same_connection:  # it may say that a standby is to be preferred, which is for the listening one
            arguments["target_session_attrs"] = PRIMARY
        defaults["target_session_attrs"] = PRIMARY
    return {**{key: value for key, value in defaults.items() if key not in present}, **arguments}


def connect_error(problem: psycopg.Error) -> HeraldError:
    """The error that tells why there is no connection."""
    text = str(problem)
    kind: Type[HeraldError] = UnreachableError
    if isinstance(problem, psycopg.ProgrammingError):
        kind = ConfigurationError
    elif NO_ACCESS.search(text):
        kind = AuthenticationError
    elif NO_DATABASE.search(text):
        kind = DatabaseMissingError
    return kind(text)


class LibpqSession:
    """One connection of either driver.

    collector   takes what arrives; None: the work connection, on which nothing arrives for the consumer
    """

    def __init__(self, raw: psycopg.BaseConnection[Any], collector: Optional[Callable[[], Collector]]):
        self.depth = 0
        self.committed = False
        self._commits = False
        self.server = f"{raw.info.host}:{raw.info.port}"
        self._base = raw
        self._collector = collector
        self._abandoned = False
        self._transactions: List[Any] = []
        if collector is not None:
            raw.add_notify_handler(lambda message: collector().add(message.channel, message.payload))

    async def fetch(self, query: str, *arguments: object) -> List[Tuple[Any, ...]]:
        """The rows of a statement."""
        raise NotImplementedError

    async def _enter(self) -> Any:
        """Begins a transaction or, within one, a savepoint."""
        raise NotImplementedError

    async def _exit(self, transaction: Any, how: Optional[psycopg.Rollback]) -> None:
        """Ends it."""
        raise NotImplementedError

    async def begin(self) -> None:
        """See Session."""
        self._transactions.append(await self._enter())
        self.depth += 1

    async def commit(self) -> None:
        """See Session."""
        await self._end(None)

    async def rollback(self) -> None:
        """See Session."""
        await self._end(psycopg.Rollback())

    async def _end(self, how: Optional[psycopg.Rollback]) -> None:
        if self.broken:  # psycopg would do nothing
            raise psycopg.OperationalError("the connection has ended")
        self.depth -= 1
        await self._exit(self._transactions.pop(), how)
        if self.broken:  # a rollback hides that
            raise psycopg.OperationalError("the connection has ended")

    async def listen(self, channel: str) -> None:
        """See Session."""
        await self.fetch(f"LISTEN {_options.quote(channel)}")

    @property
    def raw(self) -> Any:
        """psycopg's connection."""
        return self._base

    @property
    def broken(self) -> bool:
        """Whether it has ended, as far as this is known."""
        return self._abandoned or self._base.closed

    @property
    def ended(self) -> bool:
        """Whether what was begun has been ended by a statement of the user's."""
        return self.depth > 0 and self._base.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE

    @property
    def socket(self) -> int:
        """Its file descriptor."""
        return self._base.fileno()

    def receive(self) -> None:
        """Takes what has arrived, without waiting, but no more than a batch. An error if the connection has ended."""
        pgconn = self._base.pgconn
        if self._collector is None:
            pgconn.consume_input()
            return
        encoding, collector = self._base.info.encoding, self._collector()
        arrived = True
        while arrived and not collector.full:
            arrived = False
            pgconn.consume_input()  # some kilobytes
            self._receive_commit()
            while (message := pgconn.notifies()) is not None:
                collector.add(message.relname.decode(encoding), message.extra.decode(encoding))
                arrived = True

    def send_commit(self) -> None:
        """Sends COMMIT; receive() takes the answer."""
        self._base.pgconn.send_query(b"COMMIT")
        self._base.pgconn.flush()
        self._commits = True

    def _receive_commit(self) -> None:
        pgconn = self._base.pgconn
        while self._commits and not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:  # it is ready for the next statement; what was missed comes after the result, and before this
                self._commits = False
                self.committed = True
            elif result.status != psycopg.pq.ExecStatus.COMMAND_OK:
                raise psycopg.OperationalError(result.get_error_message(self._base.info.encoding))

    def sever(self) -> None:
        """Ends the connection for all that wait for it, in any thread, without waiting for the other end."""
        self._abandoned = True
        try:
            ours = socket.socket(fileno=self._base.pgconn.socket)
        except (OSError, psycopg.Error):  # it is closed
            return
        try:
            ours.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        finally:
            ours.detach()

    def finish(self) -> None:
        """Tells the server, unless that would wait, and closes the socket."""
        self._base.pgconn.finish()
