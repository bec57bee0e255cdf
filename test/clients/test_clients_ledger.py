"""The ledger: orders arrive on whichever server is the primary, while servers fail over and clients are cut off and killed."""

import os
import signal
import threading
import time
from collections.abc import Callable
from random import Random

import pytest

from client import Client
from crew import HEARTBEAT_S, LISTENS, NOTICE_DEADLINE_S, WORKS, Case, Flow
from nodes import Chain, Node

LEDGER_S = float(os.environ.get("HERALD_CLIENTS_LEDGER_S", "15"))
SEED = os.environ.get("HERALD_CLIENTS_SEED", "1")
BACKOFF_S = 0.5
WORK_TIMEOUT_S = 3
BATCH = 100  # what a busy machine handles within that time; a batch that takes longer is undone, and comes again
MUTE_S = 5 * HEARTBEAT_S
# From the commit of an order to that of its bill: two heartbeats, a pause, and what a busy machine needs to connect and start.
DEAF_DEADLINE_S = NOTICE_DEADLINE_S + BACKOFF_S + 3
PAUSE_S_MAX = 0.5
BETWEEN_S = (2, 4)  # from one server's fault to the next
TORN_BYTES_MAX = 3000


class Primary:
    """When there was a primary that commits, and when there was none."""

    def __init__(self, chain: Chain):
        self._chain = chain
        self._absent: list[list[float]] = []
        self.did: list[str] = []

    def absent_s(self, begin: float, end: float) -> float:
        """For how long there was none between two moments."""
        return sum(max(0, min(end, until) - max(begin, since)) for since, until in self._absent)

    def fail(self, dice: Random) -> None:
        """Kills or stops it, and has its standby take over, or starts it again."""
        how = dice.choice(("failover", "switchover", "crash")) if self.did else "failover"
        self.did.append(how)
        self._chain.until_safe()
        window = [time.monotonic(), float("inf")]
        self._absent.append(window)
        (Node.stop if how == "switchover" else Node.kill)(self._chain.primary)
        if how == "crash":
            self._chain.primary.start()
            self._chain.commit()
            window[1] = time.monotonic()
        else:
            old, new, last = self._chain.take_over()
            self._chain.commit()
            window[1] = time.monotonic()
            old.rejoin(new, last)


class Troubles:
    """What happens to the clients of one package."""

    def __init__(self, case: Case, primary: Primary):
        self.case, self.primary = case, primary
        self.dice = Random(f"{SEED} {case.kit.name}")
        self.started = 0  # what the client's present process has said comes after this
        self.longest_s = 0.0
        self.did: list[str] = []

    def go_on(self, stopped: threading.Event) -> None:
        """Troubles until it is stopped, each followed by an order that must be billed in time."""
        deck: list[Callable[[], float]] = []
        while not stopped.is_set():
            if not deck:
                deck = [self.terminated, self.reset, self.closed, self.torn, self.mute_listening, self.mute_work, self.killed,
                        self.restarted, self.handed_over]
                self.dice.shuffle(deck)
            trouble = deck.pop()
            self.did.append(trouble.__name__)
            self.probe(trouble())
            time.sleep(self.dice.uniform(0, PAUSE_S_MAX))

    def probe(self, more_s: float) -> None:
        """An order that is committed now must be billed before the deadline; `more_s` is what the trouble itself takes."""
        order, = self.case.order()
        began = time.monotonic()
        deadline_s = DEAF_DEADLINE_S + more_s
        while not self.case.billed_by([order]):
            self.start_again()
            now = time.monotonic()
            if now - began - self.primary.absent_s(began, now) > deadline_s:
                self.case.client.fail(f"deaf for longer than {deadline_s:g} s after {self.did[-3:]}, {self.primary.did[-3:]};"
                                      f" on the server:\n{self.case.activity()}")
            time.sleep(0.1)
        now = time.monotonic()
        self.longest_s = max(self.longest_s, now - began - self.primary.absent_s(began, now))

    def start_again(self) -> None:
        """Starts the client again where its start has failed since there was no primary, as a supervisor would."""
        client = self.case.client
        if client.runs():
            return
        client.failed("UnreachableError")
        if client.events("listening", self.started):
            client.fail("it has ended, although it had listened")
        self.start()

    def start(self) -> None:
        """Starts the client."""
        self.started = self.case.client.mark()
        self.case.client.start()

    def terminated(self) -> float:
        """Server processes end."""
        self.case.terminate(self.dice.choice((LISTENS, WORKS, "true")))
        return 0

    def reset(self) -> float:
        """Connections are reset, one to three times."""
        for _ in range(self.dice.randint(1, 3)):
            self.dice.choice((self.case.listening, self.case.work)).reset()
            time.sleep(self.dice.uniform(0, 0.1))
        return BACKOFF_S

    def closed(self) -> float:
        """Connections are closed, as by a balancer."""
        self.dice.choice((self.case.listening, self.case.work)).close()
        return 0

    def torn(self) -> float:
        """Connections are reset on the client's side, and live on for the server for a moment."""
        for proxy in self.dice.choice((self.case.listening, self.case.work)).proxies:
            threading.Thread(target=proxy.desert, args=(0.3,), daemon=True).start()
        return 1

    def mute_listening(self) -> float:
        """The listening connection is mute."""
        self.case.listening.mute(self.dice.random() < 0.5, True)
        return 0

    def mute_work(self) -> float:
        """The work connection is mute, until the server ends it."""
        self.case.work.mute(self.dice.random() < 0.5, True)
        ends = threading.Timer(MUTE_S, self.case.work.end_muted)
        ends.daemon = True
        ends.start()
        return WORK_TIMEOUT_S + MUTE_S

    def killed(self) -> float:
        """The client is killed, and started again."""
        self.case.client.kill()
        self.start()
        return 1

    def restarted(self) -> float:
        """The client is stopped, and started again."""
        self.stop(self.case.client)
        self.start()
        return 1

    def handed_over(self) -> float:
        """Another instance takes over when the first is killed or stopped."""
        old = self.case.client
        self.case.start(**old.options)
        self.started = 0
        time.sleep(self.dice.uniform(0, 0.5))
        if self.dice.random() < 0.5:
            old.kill()
        else:
            self.stop(old)
        return 1

    def stop(self, client: Client) -> None:
        """Stops a client, unless its start has failed."""
        if client.runs():
            client.signal(signal.SIGTERM)
            if client.ended() == 0:
                return
        client.failed("UnreachableError")


@pytest.mark.timeout(LEDGER_S * 3 + 600)
def test_ledger(crew, chain, trio):
    """Guards: whatever fails, servers, connections and clients, at the end each order has one bill, written once; and no
    order waits for its bill for longer than two heartbeats and what it takes to connect, except while there is no primary."""
    primary, dice = Primary(chain), Random(SEED)
    stopped = threading.Event()
    troubles: dict[str, Troubles] = {}
    with crew(trio) as all_packages:
        def begin(case: Case) -> None:
            case.wire()
            troubles[case.kit.name] = Troubles(case, primary)
            ports = case.listening.ports
            first = troubles[case.kit.name].dice.randrange(len(ports))
            case.listen(backoff=[0.05, BACKOFF_S], work_timeout=WORK_TIMEOUT_S, batch=BATCH, attempts=1000,
                        connection=trio.uri(case.dbname, ports[first:] + ports[:first]))

        def run(case: Case) -> None:
            with Flow(case, SEED):
                troubles[case.kit.name].go_on(stopped)
            case.finish()

        def fail_servers() -> None:
            try:
                end = time.monotonic() + LEDGER_S
                while time.monotonic() < end:
                    primary.fail(dice)
                    time.sleep(dice.uniform(*BETWEEN_S))
            except Exception as problem:  # pylint: disable=broad-exception-caught
                problems.append(problem)
            finally:
                stopped.set()

        problems: list[Exception] = []
        all_packages.each(begin)
        faults = threading.Thread(target=fail_servers)
        faults.start()
        all_packages.each(run)
        faults.join()
        assert not problems, problems
        for case in all_packages.cases:
            orders = case.one("SELECT count(*) FROM orders")
            by_state = case.one("SELECT count(*) FROM bill WHERE by = 'state'")
            reasons = [reason for client in case.clients for reason in client.reasons()]
            print(f"{case.kit.name}: {orders} orders, {by_state} billed by the state ({', '.join(reasons)}), longest wait"
                  f" {troubles[case.kit.name].longest_s:.1f} s, {len(troubles[case.kit.name].did)} troubles")
        print(f"servers: {', '.join(primary.did)}")


def test_ledger_can_fail(crew, herald):
    """Guards: the checks of these tests find an order without a bill, one that is billed twice, and a bill without an order."""
    with crew(herald) as all_packages:
        case = all_packages.cases[0]
        case.order(3)
        case.sql("INSERT INTO bill VALUES (1, 'state', 0), (2, 'handle', 1)")
        with pytest.raises(AssertionError, match="1 orders have no bill"):
            case.check_ledger()
        case.sql("INSERT INTO bill VALUES (3, 'state', 1)")
        case.check_ledger()
        for twice in ("UPDATE bill SET handled = 2 WHERE order_id = 2", "UPDATE bill SET handled = 2 WHERE order_id = 3"):
            case.sql(twice)
            with pytest.raises(AssertionError, match="handled twice"):
                case.check_ledger()
            case.sql("UPDATE bill SET handled = 1 WHERE handled = 2")
        case.sql("INSERT INTO bill VALUES (77, 'handle')")
        with pytest.raises(AssertionError, match="not ordered"):
            case.check_ledger()
