"""Many notifications, and a handler that is slower: memory stays bounded, and nothing is missing."""

import os
import threading

import pytest

from crew import Case

pytestmark = pytest.mark.long

NOTIFICATIONS = int(os.environ.get("HERALD_CLIENTS_NOTIFICATIONS", "40000"))
PAYLOAD_BYTES = 3000
BATCH = 1000
LARGE_TRANSACTION = int(os.environ.get("HERALD_CLIENTS_LARGE", "4000"))
# What a client may need more than at its start. All that is sent, in its memory, would be twice that at least.
MEMORY_KB_MAX = 40000 * PAYLOAD_BYTES // 1024 // 2
LOAD_DEADLINE_S = 240
WAITS_FOR_BILL = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'"
one_at_a_time = threading.Semaphore(2)  # packages, since the server sends all of it to each


def send(case: Case, count: int) -> None:
    """Sends notifications that no bill is written for, 500 in a transaction."""
    case.sql(f"""DO $$ BEGIN
        FOR part IN 1..{count // 500} LOOP
            PERFORM pg_notify('orders', format('%s %s %s', part, n, repeat('x', {PAYLOAD_BYTES}))) FROM generate_series(1, 500) n;
            COMMIT;
        END LOOP;
    END $$""")


def test_slow_handler_bounds_memory(crew, herald):
    """Guards: what a client has not handled yet stays at the server: its memory does not grow with what is sent."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            with one_at_a_time:
                client = case.listen(handler={"delay": 0.02})
                send(case, 2000)
                case.until(lambda: case.client.handled() >= 2000, "it is warm", LOAD_DEADLINE_S)
                before = client.memory_kb()
                send(case, NOTIFICATIONS)
                case.order()
                case.until_billed(LOAD_DEADLINE_S)
                # The bill is there with the commit, before the client says so, and before its line is read here.
                case.until(lambda: case.client.handled() >= NOTIFICATIONS + 2001, "it says that all is handled")
                grown = client.memory_kb("VmHWM") - before
                assert grown < MEMORY_KB_MAX, f"its memory has grown from {before} kB by {grown} kB"
                assert max(event["count"] for event in client.events("handled")) <= BATCH
                assert case.client.handled() == NOTIFICATIONS + 2001
                assert client.reasons() == ["first start"]
                case.finish()

        all_packages.each(run)


def test_transaction_larger_than_a_batch(crew, herald):
    """Guards: a transaction with more notifications than a batch is handled in one transaction, once; and so is one that is
    interrupted in the middle."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            client = case.listen(batch=BATCH)
            orders = case.order(LARGE_TRANSACTION)
            case.until_billed(LOAD_DEADLINE_S)
            bills = "SELECT count(DISTINCT xmin::text) FROM bill WHERE order_id = ANY (%s)"
            assert case.one(bills, orders) == 1, "its bills were committed in several transactions"
            since = client.mark()
            with case.session() as blocker, blocker.transaction(force_rollback=True):
                blocker.execute("INSERT INTO bill VALUES (%s, 'blocker')", [orders[-1] + LARGE_TRANSACTION // 2])
                orders = case.order(LARGE_TRANSACTION)
                case.until(WAITS_FOR_BILL, "it has come to the order in the middle")
                case.terminate("true")
                client.wait("disconnected", since)
            case.until_billed(LOAD_DEADLINE_S)
            assert case.one(bills, orders) == 1
            assert client.reasons() == ["first start"]
            case.finish()

        all_packages.each(run)


def test_many_small_transactions(crew, herald):
    """Guards: what has come while a batch is in work becomes one batch, so a client that is behind catches up."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            client = case.listen(handler={"delay": 0.1})
            case.sql("DO $$ BEGIN FOR n IN 1..3000 LOOP INSERT INTO orders DEFAULT VALUES; COMMIT; END LOOP; END $$")
            case.until_billed()
            batches = len(client.events("handled"))
            assert batches < 300, f"3,000 notifications were handled in {batches} batches"
            case.finish()

        all_packages.each(run)
