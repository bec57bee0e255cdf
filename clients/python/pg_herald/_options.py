"""The options of a consumer, checked."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Callable, Iterable, Mapping, Optional, Tuple, Union

from .errors import ConfigurationError
from .events import Event

NAME_BYTES_MAX = 63  # of a channel, on any server
OURS = "herald_"
HEARTBEAT_S_MIN = 0.1  # the server's limit
CONNECT_TIMEOUT_S = (2, 10)  # the shortest and the longest

ConnectionOptions = Union[str, Mapping[str, Any]]


class Mode(Enum):
    """Where the position is."""

    STORE = "store"    # in the table, with the work
    OWN = "own"        # in a store of the user's own
    SHARED = "shared"  # in memory


@dataclass(frozen=True)
class Options:
    """All options; the names are those of the consumer's arguments."""

    mode: Mode
    connection: ConnectionOptions
    work_connection: ConnectionOptions
    name: str
    channels: Tuple[str, ...]
    handle: Callable[..., Any]
    state: Optional[Callable[..., Any]]
    poison: Optional[Callable[..., Any]]
    store: Any
    require: bool
    heartbeat: float
    batch: int
    attempts: int
    backoff: Tuple[float, float]
    work_timeout: float
    table: str  # quoted
    on_event: Optional[Callable[[Event], object]]

    @property
    def same_connection(self) -> bool:
        """Whether both connections are made from the same options."""
        return self.work_connection is self.connection

    @property
    def heartbeat_ms(self) -> str:
        """The heartbeat, as a setting of the server."""
        return f"{round(1000 * self.heartbeat)}ms"

    @property
    def connect_timeout(self) -> int:
        """Seconds for a connection to one host."""
        return max(CONNECT_TIMEOUT_S[0], min(CONNECT_TIMEOUT_S[1], math.ceil(self.work_timeout)))

    @property
    def silence(self) -> float:
        """After so many seconds without anything a connection is left."""
        return 2 * self.heartbeat


def check(*, connection: ConnectionOptions, work_connection: Optional[ConnectionOptions], name: Optional[str],
          channels: Iterable[str], handle: Callable[..., Any], state: Optional[Callable[..., Any]],
          poison: Optional[Callable[..., Any]], store: Any, shared: bool, require: bool, heartbeat: float, batch: int,
          attempts: int, backoff: Tuple[float, float], work_timeout: float, table: str,
          on_event: Optional[Callable[[Event], object]], awaits: bool) -> Options:
    """The options; ConfigurationError if one is wrong."""
    if shared and store is not None:
        raise ConfigurationError("a consumer cannot be shared and have a store")
    if shared and name is not None:
        raise ConfigurationError("a shared consumer has no name")
    mode = Mode.SHARED if shared else Mode.OWN if store is not None else Mode.STORE
    if not shared:
        _check_name("name", name)
    if isinstance(channels, str):
        raise ConfigurationError("channels must be a list of names, not one name")
    names = tuple(dict.fromkeys(channels))
    if not names:
        raise ConfigurationError("no channel is given")
    for channel in names:
        _check_name("channel", channel)
    arguments = 1 if mode is Mode.STORE else 0
    _check_function("handle", handle, 1 + arguments)
    for what, function, count in (("state", state, 1 + arguments), ("poison", poison, 2 + arguments)):
        if function is not None:
            _check_function(what, function, count)
    if not awaits:
        for function in (handle, state, poison, getattr(store, "load", None), getattr(store, "save", None)):
            if inspect.iscoroutinefunction(function):
                raise ConfigurationError(f"{function!r} has to be awaited, for which there is AsyncConsumer")
    if not heartbeat >= HEARTBEAT_S_MIN:
        raise ConfigurationError(f"heartbeat must be {HEARTBEAT_S_MIN:g} seconds at least, not {heartbeat}")
    for what, number in (("work_timeout", work_timeout), ("backoff", min(backoff))):
        if not number > 0:
            raise ConfigurationError(f"{what} must be more than 0 seconds, not {number}")
    for what, count in (("batch", batch), ("attempts", attempts)):
        if count < 1:
            raise ConfigurationError(f"{what} must be 1 at least, not {count}")
    return Options(
        mode=mode, connection=connection, work_connection=connection if work_connection is None else work_connection,
        name=name or "", channels=names, handle=handle, state=state, poison=poison, store=store, require=require,
        heartbeat=heartbeat, batch=batch, attempts=attempts, backoff=(backoff[0], backoff[1]), work_timeout=work_timeout,
        table=_quote_table(table), on_event=on_event)


def quote(name: str) -> str:
    """The name as an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _quote_table(table: str) -> str:
    parts = table.split(".")
    if len(parts) > 2 or not all(parts):
        raise ConfigurationError(f"table must be a name, or a schema and a name, not {table!r}")
    return ".".join(map(quote, parts))


def _check_name(what: str, name: Optional[str]) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{what} is empty")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise ConfigurationError(f"{what} is longer than {NAME_BYTES_MAX} bytes: {name!r}")
    if name.startswith(OURS):
        raise ConfigurationError(f"{what} begins with {OURS}: {name!r}")
    if "\0" in name:
        raise ConfigurationError(f"{what} contains the character 0: {name!r}")


def _check_function(what: str, function: Optional[Callable[..., Any]], arguments: int) -> None:
    if not callable(function):
        raise ConfigurationError(f"{what} is no function: {function!r}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # a function in C does not always show its arguments
        return
    try:
        signature.bind(*range(arguments))
    except TypeError:
        raise ConfigurationError(f"{what} is called with {arguments} arguments, and takes {signature}") from None
