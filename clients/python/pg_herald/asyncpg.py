"""A consumer with asyncpg."""

from __future__ import annotations

import asyncio
import os
import socket
import urllib.parse
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple, Type

import asyncpg

from ._asyncio import Tasks
from ._consumer import AsyncBase
from ._options import quote
from ._runtime import Role, Session, Stop
from .errors import AuthenticationError, ConfigurationError, DatabaseMissingError, HeraldError, UnreachableError

__all__ = ["AsyncConsumer"]

PRIMARY = "read-write"  # as target_session_attrs
# A server that has become silent is noticed in this time. Not all systems have all of these.
KEEPALIVES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}

# InternalClientError: a statement came after the server's last words, and before the end of the connection.
ERRORS: Tuple[Type[Exception], ...] = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError,
                                       OSError, asyncio.TimeoutError)
CONNECT_ERRORS: Tuple[Type[Exception], ...] = (ValueError, TypeError, *ERRORS)


def _can_pause(transport: Any) -> bool:
    """asyncpg gives all that it reads to its listeners. Only its transport can stop that, which asyncpg does not document."""
    return callable(getattr(transport, "pause_reading", None))


class _Session:
    """One connection."""

    def __init__(self, raw: Any, host: Optional[str], runtime: _Runtime):
        self.depth = 0
        self._raw = raw
        self._commit: Optional[asyncio.Task[None]] = None
        self._runtime = runtime
        self._transactions: List[Any] = []
        self._channels: Set[str] = set()
        self._transport = getattr(raw, "_transport", None)
        self._can_pause = _can_pause(self._transport)
        self._reading = True
        self.arrived = False
        self.failure: Optional[BaseException] = None  # of the commit
        self.server = self._name(host)
        raw.add_termination_listener(runtime.wake)
        self._set_keepalives()

    @property
    def raw(self) -> Any:
        return self._raw

    @property
    def broken(self) -> bool:
        return bool(self._raw.is_closed())

    @property
    def ended(self) -> bool:
        return self.depth > 0 and not self.broken and not self._raw.is_in_transaction()

    async def fetch(self, query: str, *arguments: object) -> List[Tuple[Any, ...]]:
        self.read(True)
        return [tuple(row) for row in await self._raw.fetch(query, *arguments)]

    async def begin(self) -> None:
        transaction = self._raw.transaction()
        await transaction.start()
        self._transactions.append(transaction)
        self.depth += 1

    async def commit(self) -> None:
        self.depth -= 1
        await self._transactions.pop().commit()

    async def rollback(self) -> None:
        self.depth -= 1
        await self._transactions.pop().rollback()

    @property
    def committed(self) -> bool:
        return self._commit is not None and self._commit.done() and not self._commit.cancelled() \
            and self._commit.exception() is None

    def send_commit(self) -> None:
        self.depth -= 1
        self._commit = asyncio.ensure_future(self._transactions.pop().commit())
        self._commit.add_done_callback(self._note_commit)

    def _note_commit(self, commit: asyncio.Task[None]) -> None:
        if not commit.cancelled():
            self.failure = commit.exception()
        self.arrived = True
        self._runtime.wake()

    async def listen(self, channel: str) -> None:
        if channel in self._channels:  # in a transaction that was rolled back
            await self._raw.execute(f"LISTEN {quote(channel)}")
        else:
            await self._raw.add_listener(channel, self._arrive)
            self._channels.add(channel)

    def read(self, wanted: bool) -> None:
        """Lets the connection read, or not."""
        if self._can_pause and wanted is not self._reading and not self.broken:
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()  # type: ignore[union-attr]
            else:
                self._transport.pause_reading()  # type: ignore[union-attr]

    def abandon(self) -> None:
        self._raw.terminate()

    async def close(self) -> None:
        self.read(True)
        try:
            await self._raw.close(timeout=self._runtime.options.silence)
        except ERRORS:  # it does not answer, or the answer to the commit is still to come
            self._raw.terminate()
        if self._commit is not None:
            await asyncio.wait({self._commit})

    def _arrive(self, _connection: object, _pid: int, channel: str, payload: object) -> None:
        collector = self._runtime.collector
        collector.add(channel, str(payload))
        self.arrived = True
        self._runtime.wake()
        if collector.full:
            self.read(False)
        if not self._can_pause and collector.waiting > 2 * collector.size and collector.first_position is not None:
            self._raw.terminate()  # what is complete is still handled; then it resumes

    def _name(self, host: Optional[str]) -> str:
        if host is None and self._transport is not None:
            peer = self._transport.get_extra_info("peername")
            host = ":".join(map(str, peer[:2])) if isinstance(peer, tuple) else str(peer)
        return host or "unknown"

    def _set_keepalives(self) -> None:
        ours = self._transport.get_extra_info("socket") if self._transport is not None else None
        if ours is not None and ours.family != getattr(socket, "AF_UNIX", None):
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVES.items():
                if hasattr(socket, name):
                    ours.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _Runtime(Tasks):
    """Connections of asyncpg."""

    errors = ERRORS

    async def connect(self, role: Role) -> _Session:
        given = self.options.work_connection if role is Role.WORK else self.options.connection
        arguments: Dict[str, Any] = {"dsn": given} if isinstance(given, str) else dict(given)
        if role is Role.LISTENING_ON_PRIMARY or role is Role.WORK and self.options.same_connection:
            arguments["target_session_attrs"] = PRIMARY
        elif role is Role.WORK and not _says_target(arguments):
            arguments["target_session_attrs"] = PRIMARY
        arguments.setdefault("timeout", self.options.connect_timeout)
        settings = arguments.get("server_settings") or {}
        arguments["server_settings"] = {"application_name": f"pg_herald {self.options.name}".rstrip(), **settings}
        # asyncpg tries the next host after some errors only, and has one timeout for all hosts.
        problems = []
        try:
            targets, hosts = _each_target(arguments), _each_host(arguments)
        except ValueError as problem:
            raise ConfigurationError(f"connection: {problem}") from problem
        for target in targets:
            for host in hosts:
                try:
                    raw = await self.unless_stopped(asyncpg.connect(**{**arguments, **target, **host}),
                                                    lambda late: late.terminate())
                except CONNECT_ERRORS as problem:
                    problems.append(_connect_error(problem, host))
                else:
                    return _Session(raw, f"{host['host']}:{host['port']}" if host else None, self)
        raise next((problem for problem in problems if not isinstance(problem, UnreachableError)), problems[-1])

    async def wait(self, listening: Session, work: Optional[Session], seconds: float, stoppable: bool) -> bool:
        assert isinstance(listening, _Session)
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        try:
            listening.read(True)
            while True:
                if stoppable and self.stopping:
                    raise Stop
                if work is not None and work.broken:
                    raise ConnectionError("the work connection has ended")
                if listening.failure is not None:
                    raise listening.failure
                if listening.arrived:
                    listening.arrived = False
                    return True
                if listening.broken:
                    raise ConnectionError("the listening connection has ended")
                if loop.time() >= end:
                    return False
                await self.sleep(end - loop.time())
        finally:
            listening.read(False)


def _query(arguments: Dict[str, Any]) -> Dict[str, List[str]]:
    return urllib.parse.parse_qs(urllib.parse.urlparse(arguments.get("dsn") or "").query)


def _says_target(arguments: Dict[str, Any]) -> bool:
    return "target_session_attrs" in arguments or "target_session_attrs" in _query(arguments)


def _each_target(arguments: Dict[str, Any]) -> List[Dict[str, str]]:
    """What a server has to be, one after the other: asyncpg knows what to prefer only if it tries all hosts itself."""
    wanted = arguments.get("target_session_attrs") or _query(arguments).get("target_session_attrs", [None])[-1] \
        or os.environ.get("PGTARGETSESSIONATTRS")
    if wanted == "prefer-standby":
        return [{"target_session_attrs": "standby"}, {"target_session_attrs": "any"}]
    return [{}]


def _each_host(arguments: Dict[str, Any]) -> List[Dict[str, Any]]:
    """host and port of each server; one empty one if asyncpg is to find them."""
    hosts, ports = arguments.get("host"), arguments.get("port")
    if hosts is None:
        query = _query(arguments)
        places = urllib.parse.urlparse(arguments.get("dsn") or "").netloc.rpartition("@")[2]
        places = places or ",".join(query.get("host", [])) or os.environ.get("PGHOST", "")
        hosts, found = [], []
        for place in places.split(",") if places else []:
            host, port = _split(urllib.parse.unquote(place))
            hosts.append(host)
            found.append(port)
        if ports is None:
            ports = [int(port) for port in ",".join(query.get("port", [])).split(",") if port]
            ports = [port or other for port, other in zip(found, _spread(ports, len(hosts)))]
    elif isinstance(hosts, str):
        hosts = [hosts]
    return [{"host": host, "port": port} for host, port in zip(hosts, _spread(ports, len(hosts)))] or [{}]


def _spread(ports: Any, count: int) -> Iterator[int]:
    """A port for each host."""
    if ports is None or ports == []:
        ports = [int(port) for port in os.environ.get("PGPORT", "5432").split(",")]
    elif isinstance(ports, (int, str)):
        ports = [int(ports)]
    if len(ports) not in (1, count):
        raise ValueError(f"there are {count} hosts and {len(ports)} ports")
    return iter([int(port) for port in (list(ports) * count if len(ports) == 1 else ports)])


def _split(place: str) -> Tuple[str, Optional[int]]:
    """host:port, where the host may be [an address with colons] or the folder of a socket."""
    if place.startswith("/"):
        return place, None
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        return host, int(port[1:]) if port.startswith(":") else None
    host, _, port = place.partition(":")
    return host, int(port) if port else None


def _connect_error(problem: Exception, host: Dict[str, Any]) -> HeraldError:
    """The error that tells why there is no connection."""
    kind: Type[HeraldError] = UnreachableError
    code = getattr(problem, "sqlstate", None)
    if isinstance(problem, (ValueError, TypeError)):
        kind = ConfigurationError
    elif code is not None and code.startswith("28") or code == "42501":
        kind = AuthenticationError
    elif code == "3D000":
        kind = DatabaseMissingError
    where = f"{host['host']}:{host['port']}: " if host else ""
    error = kind(f"{where}{str(problem) or type(problem).__name__}")
    error.__cause__ = problem
    return error


class AsyncConsumer(AsyncBase["asyncpg.Connection[Any]"]):
    """A consumer of notifications that misses nothing, with asyncpg."""

    def _make_runtime(self) -> _Runtime:
        return _Runtime(self._options)
