"""A pooler that gives each transaction another connection: notifications do not arrive behind it."""

import re

import pytest

from crew import NOTICE_DEADLINE_S, Case
from harness.bouncer import Bouncer

pytestmark = pytest.mark.long


def test_pooler_with_pooled_transactions(crew, herald):
    """Guards: a client whose listening connection goes through PgBouncer in transaction mode notices within two heartbeats that
    it is deaf, says what it lacks, and handles the orders that it finds at each connection."""
    with Bouncer(herald.primary, herald.password, pool_mode="transaction") as bouncer, crew(herald) as all_packages:
        def run(case: Case) -> None:
            client = case.start(connection=herald.uri(case.dbname, [bouncer.port]))
            began = client.wait("listening").at
            case.leaves(0, began, NOTICE_DEADLINE_S, "a pooler that keeps notifications to itself")
            errors = " ".join(str(event["error"]) for event in client.events("disconnected"))
            assert re.search("heartbeat|pooler|PgBouncer", errors, re.IGNORECASE), errors
            client.stop()

        all_packages.each(run)


def test_pooler_with_pooled_sessions(crew, herald, stock):
    """Guards: PgBouncer in session mode is no obstacle, for neither connection."""
    for site in (herald, stock):
        with Bouncer(site.primary, site.password) as bouncer, crew(site) as all_packages:
            def run(case: Case) -> None:
                pooled = site.uri(case.dbname, [bouncer.port])
                client = case.listen(connection=pooled, work_connection=None)
                case.order_and_bill(3)
                assert not client.events("disconnected"), client.events("disconnected")[0].fields
                case.finish()

            all_packages.each(run)
