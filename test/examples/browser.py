"""A headless Chromium, controlled by the WebDriver protocol."""

import json
import os
import signal
from urllib.error import URLError
from urllib.request import Request, urlopen

from harness.ports import LOOPBACK
from harness.private_server import PrivateServer

TIMEOUT_S = 60
NEEDS = {"chromium": ["chromium", "--version"], "chromium-driver": ["chromedriver", "--version"]}


class Browser(PrivateServer):
    """Chromium's driver, and one window of Chromium; unprivileged, with a profile of its own."""

    program_name = "chromedriver"

    def __init__(self):
        super().__init__()
        self.session: dict | None = None

    def command(self) -> list[str]:
        return ["env", f"HOME={self.folder}", self.program, f"--port={self.port}"]

    def __enter__(self) -> "Browser":
        super().__enter__()
        try:
            self.session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": [
                "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={self.folder}/profile",
                "--no-sandbox",  # containers do not support the sandbox; only our own page is shown
            ]}}}})
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Ends Chromium first, as it would outlive its driver."""
        session, self.session = self.session, None
        if session:
            try:
                self._ask("DELETE", f"/session/{session['sessionId']}")
            except OSError:
                if pid := session["capabilities"].get("goog:processID"):
                    os.kill(pid, signal.SIGKILL)
        super().stop()

    def go(self, address: str) -> None:
        """Opens a page."""
        self._ask("POST", f"/session/{self.session['sessionId']}/url", {"url": address})

    def run(self, script: str) -> object:
        """Runs the body of a function in the page; returns its result."""
        return self._ask("POST", f"/session/{self.session['sessionId']}/execute/sync", {"script": script, "args": []})

    def _ask(self, method: str, path: str, body: dict | None = None) -> object:
        request = Request(f"http://{LOOPBACK}:{self.port}{path}", method=method,
                          data=None if body is None else json.dumps(body).encode(),
                          headers={"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)["value"]
        except URLError as error:
            said = error.read().decode(errors="replace") if hasattr(error, "read") else ""
            raise OSError(f"{method} {path}: {error} {said[:1000]}\n{self.log()[-1000:]}") from error
