"""Runs commands that leave nothing behind, neither at their end, nor when we are interrupted."""

import os
import signal
import subprocess
import tempfile
from pathlib import Path

from harness import cleanup


class CommandError(RuntimeError):
    """A command failed or took too long; the message has its output."""


def call(command: list[str], *, timeout_s: float, environment: dict[str, str], folder: Path) -> str:
    """Runs a command and returns its standard output; CommandError unless it ends with 0 in time.

    It has its own process group, which is killed at its end. Its output is written to files, since a
    process that inherits a pipe could keep us waiting.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as output, \
            tempfile.TemporaryFile("w+", errors="replace") as errors:
        with cleanup.deferred_signals():
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                           env=environment, cwd=folder, start_new_session=True)
            except OSError as error:
                raise CommandError(f"{command[0]}: {error}") from error

            def end() -> None:
                end_group(process)
            cleanup.at_end(end)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end()
            cleanup.cancel(end)
        said = _read(errors) or _read(output)
        if status is None:
            raise CommandError(f"{' '.join(command)}: did not end within {timeout_s:g} s\n{said[-4000:]}")
        if status != 0:
            raise CommandError(f"{' '.join(command)}: ended with {status}\n{said[-4000:]}")
        return _read(output)


def end_group(process: subprocess.Popen) -> None:
    """Kills the process, if it still runs, and all processes that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _read(file) -> str:
    file.seek(0)
    return file.read().strip()
