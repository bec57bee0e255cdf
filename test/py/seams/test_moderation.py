"""Continuous notifications (notify/listener/moderation.c): fewer wakeups, without any delay."""

from pathlib import Path
from statistics import median

import pytest

from harness.listeners import Listeners
from sequences import nothing_wrong
from support import load, notify, one
from timing import one_within, seconds
from wire import Wire, kinds

SENDERS = 8
EACH = 4000     # notifications per sender
FLOODS = 5

QUERIES = 500
HEARD_BEFORE = 5  # so that the listener is receiving, not just back from the previous query
TIMES_MAX = 10


def runnable() -> int:
    """Number of other processes on the machine that are runnable now."""
    return int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].split("/")[0]) - 1


@pytest.mark.alone
@pytest.mark.timeout(300)
@pytest.mark.parametrize("listening", [1, 20])
def test_flood_of_several_senders(cluster, connect, listening):
    """Guards: while several senders notify as fast as they can, each listener receives each message once, each sender's
    in order, with far fewer wakeups; single ones afterwards arrive, although nothing follows them."""
    sender = connect(cluster)
    script = "\\set n :n + 1\nSELECT pg_notify('flood', :client_id || ':' || :n::text);"
    messages = SENDERS * EACH
    wakeups, others = [], []
    with Listeners(cluster, listening, "flood", check_sequence=SENDERS) as listeners:
        # If other processes took the CPUs from the senders meanwhile, it was no flood.
        while not wakeups or len(wakeups) < 2 * FLOODS and wakeups[-1] >= listening * messages / 8:
            before = one(sender, "SELECT wakeups FROM herald.stats")
            others.append(runnable())
            cluster.client("pgbench", "-n", "-Mprepared", f"-c{SENDERS}", f"-t{EACH}",
                           "-D", f"n={len(wakeups) * EACH}", "-f", "/dev/stdin", stdin=script, timeout_s=50)
            total = (len(wakeups) + 1) * messages
            counts = listeners.wait(listening * total, 30)
            assert counts["min"] == counts["max"] == total, counts
            wakeups.append(one(sender, "SELECT wakeups FROM herald.stats") - before)

        for number in range(1, 11):
            notify(sender, "flood", f"0:{len(wakeups) * EACH + number}")
            counts = listeners.wait(listening * (total + number), 20)
            assert counts["min"] == total + number, f"single notification {number} did not come"
    print(f"{listening * messages} messages, wakeups: {wakeups}")
    assert counts["sequence"] == nothing_wrong(listening * (total + 10))
    if wakeups[-1] >= listening * messages / 8 and max(others) > 0:
        pytest.skip("others want the CPUs: it was no flood")
    assert wakeups[-1] < listening * messages / 8


def test_flood_of_one_sender(cluster, connect):
    """Guards: commits that follow one another faster than a wakeup takes are received once each and in order; a single
    one after them arrives as well."""
    sender = connect(cluster)
    with Listeners(cluster, 1, "flood", check_sequence=1) as listener:
        for heard in range(0, FLOODS * (EACH + 1), EACH + 1):
            sender.execute(f"""DO $$ BEGIN FOR n IN {heard + 1} .. {heard + EACH} LOOP
                PERFORM pg_notify('flood', '0:' || n); COMMIT; END LOOP; END $$""")
            assert listener.wait(heard + EACH, 30)["notifications"] == heard + EACH
            notify(sender, "flood", f"0:{heard + EACH + 1}")
            counts = listener.wait(heard + EACH + 1, 20)
    assert counts["sequence"] == nothing_wrong(FLOODS * (EACH + 1))


def query(client: Wire) -> None:
    """Runs a query; notifications may come before its answer."""
    assert kinds(client.query("SELECT 1")).replace("A", "") == "TDCZ"


def hear_some(client: Wire) -> None:
    """Reads a few notifications."""
    assert kinds([client.receive() for _ in range(HEARD_BEFORE)]) == "A" * HEARD_BEFORE


@pytest.mark.alone
@pytest.mark.parametrize("script, clients", [("\\sleep 50 us\nNOTIFY flood;", 4), ("NOTIFY flood;", 1)],
                         ids=["several", "one"])
def test_query_of_a_listener_in_the_flood(cluster, connect, wire, script, clients):
    """Guards: a listener that stays awake for further notifications answers its own client's queries about as fast as a
    session that does not listen."""
    listener, other = wire(cluster), wire(cluster)
    listener.query("LISTEN flood")

    def medians() -> tuple[float, float]:
        of_listener, of_other = [], []
        for _ in range(QUERIES):
            for times, client in ((of_listener, listener), (of_other, other)):
                hear_some(listener)
                times.append(seconds(lambda client=client: query(client)))
        return median(of_listener), median(of_other)

    with load(cluster, script, clients=clients):
        one_within(medians, TIMES_MAX)
