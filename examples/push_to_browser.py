"""Shows new orders in browsers: python3 push_to_browser.py [PORT]. PGHOST, PGDATABASE, ... say where the database is."""

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg

PAGE = """<!doctype html>
<title>Orders</title>
<ul id="orders"></ul>
<script>
  const list = document.getElementById("orders");
  const shown = new Set(); // what is in the state may be pushed once more
  function show(order) {
    if (!shown.has(order)) {
      shown.add(order);
      list.append(Object.assign(document.createElement("li"), {textContent: order}));
    }
  }
  const source = new EventSource("/events");
  source.onmessage = event => JSON.parse(event.data).forEach(show);
  source.addEventListener("state", event => {
    list.replaceChildren();
    shown.clear();
    JSON.parse(event.data).forEach(show);
  });
  source.onerror = () => { // the browser connects again by itself, unless a proxy has answered with an error
    if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 1000);
  };
</script>
"""


def events(connection: psycopg.Connection, position: str | None) -> Iterator[str]:
    """An event has all rows of a call; its id is the position after them, and the browser that comes back sends the last one."""
    yield "retry: 500\n\n"
    while True:
        if not position:  # begin with the state: what is committed after the position is pushed
            (position,), = connection.execute("SELECT herald.position()")
            state = [str(order) for order, in connection.execute("SELECT id FROM orders ORDER BY id")]
            yield f"id: {position}\nevent: state\ndata: {json.dumps(state)}\n\n"
        try:
            rows = connection.execute(
                "SELECT position, payload FROM herald.read('orders', after => %s, wait => '20s')", [position]).fetchall()
            position = rows[-1][0]
            payloads = [payload for _, payload in rows if payload is not None]
            data = f"data: {json.dumps(payloads)}\n" if payloads else ""  # without data only the id counts
            yield f"id: {position}\n{data}\n"
        except (psycopg.DataError, psycopg.errors.ObjectNotInPrerequisiteState):  # no position, or one too old
            position = None


class Handler(BaseHTTPRequestHandler):
    """Two addresses: the page, and its events."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path in ("/", "/events") else 404)
        self.send_header("Content-Type", "text/event-stream" if self.path == "/events" else "text/html")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.path == "/":
            self.wfile.write(PAGE.encode())
        elif self.path == "/events":
            try:
                with psycopg.connect(autocommit=True) as connection:
                    for event in events(connection, self.headers["Last-Event-ID"]):
                        self.wfile.write(event.encode())
            except (psycopg.OperationalError, ConnectionError):
                pass  # the end of the stream; the browser comes back


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8000), Handler).serve_forever()
