"""What the page of examples/push_to_browser.py must show, however its connections break."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

from browser import Browser
from harness.ports import LOOPBACK, free_port
from proxy import Proxy
from trial import OTHERS, Consumer, Trial, check_same

LISTED = "return Array.from(document.querySelectorAll('#orders li'), line => line.textContent)"
# Records what is pushed, in order: the page itself would hide duplicates.
RECORD = "window.pushed = []; source.addEventListener('message', event => pushed.push(...JSON.parse(event.data)))"


class PushTrial(Trial):
    """Like the trial of a consumer, but checks what a browser shows."""

    version = "?"  # of the browser, set while it runs

    def run(self, command: list[str], folder: Path) -> int:
        port = free_port()
        self.order(3)
        server = Consumer([*command, str(port)], self.environment(self.cluster.port), folder / "log")
        with server, Proxy(port) as proxy, Browser() as browser:
            self.version = browser.session["capabilities"]["browserVersion"]

            def shows_all() -> bool:
                return len(browser.run(LISTED)) >= int(self.psql("SELECT count(*) FROM orders"))

            self.until(server, lambda: reachable(port), "the page's server answers")
            browser.go(f"http://{LOOPBACK}:{proxy.port}/")
            self.until(server, shows_all, "the page shows the state")
            browser.run(RECORD)
            sent = self.under_a_flow(lambda: self.break_streams(server, proxy))
            self.until(server, shows_all, "the page shows all orders")
            check_same(browser.run("return pushed"), sent, server)
            check_same(browser.run(LISTED), ["1", "2", "3", *sent], server)
            self.begins_anew(server, browser, shows_all)
            return len(browser.run(LISTED))

    def break_streams(self, server: Consumer, proxy: Proxy) -> None:
        """Breaks the connections in all ways, in random order."""
        for way in self.any_order(self.ways(server, proxy)):
            before = self.backends()
            way()
            self.until(server, lambda: self.backends() - before, "the browser comes back")
            time.sleep(self.random.uniform(0, 0.5))

    def begins_anew(self, server: Consumer, browser: Browser, shows_all: Callable[[], bool]) -> None:
        """Restarts PostgreSQL, after which nothing is kept: the page must show the state, and continue."""
        self.cluster.restart()
        for _ in range(2):
            self.order(1)
            self.until(server, shows_all, "the page shows what came since the restart")
        check_same(browser.run(LISTED), self.psql("SELECT id FROM orders ORDER BY id").split(), server)

    def backends(self) -> set[str]:
        """The server processes of the page's server."""
        return set(self.psql(f"SELECT pid {OTHERS}").split())


def reachable(port: int) -> bool:
    """Whether a server listens on that port."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
