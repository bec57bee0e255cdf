"""Runs the programs that docs/resume.md shows, unchanged. Those in other languages run in test/drivers."""

import sys
from http.client import HTTPConnection

import pytest

from harness.ports import LOOPBACK, free_port
from harness.tcp_cluster import TcpCluster
from push_trial import reachable
from servers import SETTINGS, started
from trial import EXAMPLES, Consumer, Trial

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def site():
    """A server that the programs connect to by TCP, so that their connections can be cut."""
    yield from started(TcpCluster, preload=True, settings=SETTINGS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_consumer(site, tmp_path, driver):
    """Guards: a consumer that is disconnected in every way, and killed, handles each notification once, in order; and
    when notifications are gone, it reads the state."""
    with Trial(site, driver) as trial:
        trial.run([sys.executable, str(EXAMPLES / f"consumer_{driver}.py")], tmp_path)


class Stream:
    """The event stream that a browser receives from /events."""

    def __init__(self, port: int, last_event_id: str | None):
        self.connection = HTTPConnection(LOOPBACK, port, timeout=TIMEOUT_S)
        self.connection.request("GET", "/events", headers={"Last-Event-ID": last_event_id} if last_event_id else {})
        self.answer = self.connection.getresponse()

    def __enter__(self) -> "Stream":
        assert self.event() == {"retry": "500"}
        return self

    def __exit__(self, *_exception) -> None:
        self.answer.close()
        self.connection.close()

    def event(self) -> dict[str, str]:
        """The next event's fields."""
        fields = {}
        while line := self.answer.readline().decode().rstrip("\n"):
            name, _, fields[name] = line.partition(": ")
        return fields


def test_push(site, tmp_path):
    """Guards: the page's server sends the state to a new browser, or one with an invalid or too old position, and to
    any other all that came after its last event, a transaction's rows in one. The page itself is tested in test/drivers."""
    port = free_port()
    with Trial(site, "push") as trial, \
            Consumer([sys.executable, str(EXAMPLES / "push_to_browser.py"), str(port)],
                     trial.environment(site.port), tmp_path / "log") as server:
        trial.until(server, lambda: reachable(port), "it answers")
        trial.order(2)
        with Stream(port, None) as stream:
            first = stream.event()
            assert (first["event"], first["data"]) == ("state", '["1", "2"]')
            trial.order(2)
            pushed = stream.event()
            assert pushed["data"] == '["3", "4"]' and "event" not in pushed
        trial.order(1)
        for event, rest in ((first, '["3", "4", "5"]'), (pushed, '["5"]')):
            with Stream(port, event["id"]) as stream:
                assert stream.event()["data"] == rest
        with Stream(port, "made up") as stream:
            assert stream.event()["data"] == '["1", "2", "3", "4", "5"]'
        trial.psql("SET herald.enabled = off; INSERT INTO orders (item) VALUES ('missed')")
        trial.order(1)
        with Stream(port, pushed["id"]) as stream:
            assert stream.event()["data"] == '["1", "2", "3", "4", "5", "6", "7"]'
