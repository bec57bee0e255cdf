"""A notification goes out in the commit that sends it, not with the answer to the sender's client.

Which of the two reaches its client first is a race of two processes, on the stock server too."""

import pytest

from wire import cstring, payloads


@pytest.mark.parametrize("which", ["stock", "cluster"])
def test_signalled_in_the_commit(request, wire, which):
    """Guards: a listener has the notification while the sender's session is still busy with the same query string."""
    server = request.getfixturevalue(which)
    listener, sender, holder = wire(server), wire(server), wire(server)
    listener.query("LISTEN c")
    holder.query("SELECT pg_advisory_lock(1)")
    sender.send(("Q", cstring("BEGIN; NOTIFY c, '1'; COMMIT; SELECT pg_advisory_lock(1)")))
    assert payloads([listener.receive()]) == ["1"]
    holder.query("SELECT pg_advisory_unlock(1)")
    sender.until_ready()
