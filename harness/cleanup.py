"""Runs clean-up when the interpreter ends: normally, by an error, or by a signal.

SIGTERM and SIGHUP become SystemExit, so that `with` blocks and `atexit` run as they do for
Ctrl-C. A process that is killed with SIGKILL cleans up nothing.
"""

import atexit
import signal
import threading
from collections.abc import Callable

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_callbacks: list[Callable[[], None]] = []
_installed = False


def at_end(callback: Callable[[], None]) -> None:
    """Calls `callback` when the interpreter ends, unless cancelled; the newest callback runs first."""
    global _installed
    if not _installed:
        atexit.register(_run_all)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, _exit)
        _installed = True
    _callbacks.append(callback)


def cancel(callback: Callable[[], None]) -> None:
    """Undoes an at_end(), if there was one."""
    if callback in _callbacks:
        _callbacks.remove(callback)


def interrupt_by_signals() -> None:
    """Makes SIGTERM and SIGHUP raise KeyboardInterrupt instead, like Ctrl-C; to be called before at_end().

    For tests: their frameworks treat SystemExit as a failure of the test.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


class deferred_signals:
    """Inside this `with` block signals are deferred until the block's end.

    For steps that must not be interrupted halfway: between starting a server and recording that it
    runs, and while cleaning up. In other threads, which no signal interrupts, it does nothing.
    """

    def __enter__(self) -> None:
        self._pending: list[int] = []
        self._previous = {}
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._previous[number] = signal.signal(number, self._note)

    def __exit__(self, *_exception) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        for number in self._pending:
            signal.raise_signal(number)

    def _note(self, number: int, _frame) -> None:
        if number not in self._pending:
            self._pending.append(number)


def _exit(number: int, _frame) -> None:
    raise SystemExit(128 + number)


def _run_all() -> None:
    with deferred_signals():
        while _callbacks:
            _callbacks.pop()()
