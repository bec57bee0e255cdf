"""Listening connections, held by the C program bench/clients/listen.c (built by bench/Makefile)."""

import json
import subprocess
from pathlib import Path

from harness.cluster import Cluster

CLIENTS = Path(__file__).resolve().parent.parent / "bench" / "clients"
PROGRAM = CLIENTS / "build" / "listen"
END_TIMEOUT_S = 20


class ListenersError(RuntimeError):
    """The listening program ended or did not start; its message is on stderr."""


def _command(connections: int, channel: str, options: dict[str, object]) -> list[str]:
    if not PROGRAM.exists():
        raise ListenersError(f"{PROGRAM} is not built; run make -C {CLIENTS}")
    command = [str(PROGRAM), "--connections", str(connections), "--channel", channel]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    return command


def _environment(cluster: Cluster, dbname: str) -> dict[str, str]:
    """A client's, without LD_PRELOAD, which loads a sanitizer into servers: with it this threaded program may hang."""
    return {key: value for key, value in cluster.environment(dbname).items() if key != "LD_PRELOAD"}


class Listeners:
    """Connections that LISTEN until close(); ready when the constructor returns.

    In `channel`, %d is replaced by the number of the channel. Options are those of the program, with
    underscores, such as channels_each, start, heartbeat, check_sequence.
    """

    def __init__(self, cluster: Cluster, connections: int = 1, channel: str = "channel_1", *,
                 dbname: str = "postgres", **options: object):
        self.connections = connections
        self._process = subprocess.Popen(_command(connections, channel, options), text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         env=_environment(cluster, dbname))
        try:
            self._answer("ready")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Listeners":
        return self

    def __exit__(self, *_exception) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of the listening program."""
        return self._process.pid

    def count(self) -> dict:
        """Counts of what was received so far: notifications, min and max per connection, bytes, closed, listen_us."""
        return self._ask("count")

    def wait(self, total: int, timeout_s: float = 60) -> dict:
        """Waits until all connections together have received `total` notifications, or for timeout_s; returns count().

        The answer's waited_us is the duration of the wait.
        """
        return self._ask(f"wait {total} {int(timeout_s * 1000)}")

    def close(self) -> None:
        """Closes the connections and ends the program."""
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise ListenersError(f"the listening program did not end within {END_TIMEOUT_S} s") from error
        finally:
            self._process.kill()  # no effect if it has ended
            self._process.wait()
            self._process.stdout.close()

    def _ask(self, command: str) -> dict:
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ListenersError("the listening program has ended") from error
        return json.loads(self._answer("{"))

    def _answer(self, expected: str) -> str:
        line = self._process.stdout.readline()
        if not line.startswith(expected):
            raise ListenersError(f"the listening program answered {line!r} instead of {expected!r}")
        return line


def run_once(cluster: Cluster, connections: int, channel: str = "channel_1", *, dbname: str,
             timeout_s: float | None = None, **options: object) -> dict:
    """Runs the program for one measurement (options probe or paced), and returns its result.

    ListenersError if it fails; subprocess.TimeoutExpired if it has to be killed.
    """
    result = subprocess.run(_command(connections, channel, options), text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, env=_environment(cluster, dbname), timeout=timeout_s)
    lines = result.stdout.splitlines()
    if result.returncode != 0 or len(lines) != 2:
        raise ListenersError(f"the listening program's measurement failed ({result.returncode})")
    return json.loads(lines[1])


def probe(cluster: Cluster, listeners: int, count: int, *, interval_ms: int = 20,
          channel: str = "channel_1", dbname: str = "postgres") -> dict:
    """Sends `count` notifications at an interval to `listeners` connections, and returns the latencies.

    commit_us, first_us and last_us hold raw microseconds, p50 and p99; `complete` is the number of
    notifications that every listener received.
    """
    return run_once(cluster, listeners, channel, dbname=dbname, probe=count, interval_ms=interval_ms)
