"""What a consumer reports to on_event, and to the logger "pg_herald"."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import ClassVar, Optional


@dataclass(frozen=True)
class Event:
    """The base of all of them. at: seconds since 1970."""

    name: ClassVar[str]
    level: ClassVar[int] = logging.INFO
    at: float = field(default_factory=time.time, init=False, compare=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Waiting(Event):
    """Another instance is active; this one waits until it ends."""

    name = "waiting"

    def __str__(self) -> str:
        return "waiting: another instance is active"


@dataclass(frozen=True)
class Active(Event):
    """This instance is the active one. epoch: the number of activations; None with a store of your own."""

    name = "active"
    epoch: Optional[int]

    def __str__(self) -> str:
        return "active" if self.epoch is None else f"active: epoch {self.epoch}"


@dataclass(frozen=True)
class State(Event):
    """Something may be missing: state is about to be called. reason: "first start", "gone" or "stock"."""

    name = "state"
    reason: str

    def __str__(self) -> str:
        return f"state: {self.reason}"


@dataclass(frozen=True)
class Listening(Event):
    """It listens. resumed: nothing is missing. stock: the server has no pg_herald."""

    name = "listening"
    server: str
    resumed: bool
    stock: bool

    def __str__(self) -> str:
        how = "a server without pg_herald" if self.stock else "resumed" if self.resumed else "not resumed"
        return f"listening: {self.server}, {how}"


@dataclass(frozen=True)
class Handled(Event):
    """A batch is committed. position: None on a server without pg_herald."""

    name = "handled"
    level = logging.DEBUG
    count: int
    position: Optional[str]

    def __str__(self) -> str:
        return f"handled: {self.count}"


@dataclass(frozen=True)
class Failing(Event):
    """An attempt has failed, and will be repeated."""

    name = "failing"
    level = logging.WARNING
    error: Exception
    attempt: int

    def __str__(self) -> str:
        return f"failing: attempt {self.attempt}: {describe(self.error)}"


@dataclass(frozen=True)
class Poison(Event):
    """A notification cannot be handled. decision: "skip" or "stop"."""

    name = "poison"
    level = logging.ERROR
    channel: str
    payload: str
    error: Exception
    decision: str

    def __str__(self) -> str:
        return f"poison: {self.decision}, channel {self.channel!r}, payload {self.payload!r}: {describe(self.error)}"


@dataclass(frozen=True)
class Disconnected(Event):
    """Both connections are closed; the next attempt comes after the pause, in seconds."""

    name = "disconnected"
    level = logging.WARNING
    error: Exception
    pause: float

    def __str__(self) -> str:
        return f"disconnected, again in {self.pause:.1f} s: {describe(self.error)}"


@dataclass(frozen=True)
class Superseded(Event):
    """Another instance has become active."""

    name = "superseded"
    level = logging.WARNING

    def __str__(self) -> str:
        return "superseded: another instance has become active"


@dataclass(frozen=True)
class Stopped(Event):
    """The consumer has ended, with an error or as asked."""

    name = "stopped"
    error: Optional[BaseException]

    def __str__(self) -> str:
        return "stopped" if self.error is None else f"stopped: {describe(self.error)}"


def describe(error: BaseException) -> str:
    """The error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
