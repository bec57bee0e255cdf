"""What is decided without a connection."""

import pytest

from pg_herald._core import Batch, Collector, Failures, Notification, Pauses


def some(count, start=1):
    return [Notification("orders", str(number)) for number in range(start, start + count)]


def fill(collector, *what):
    """Adds notifications, by their numbers, and positions, by their texts."""
    for each in what:
        if isinstance(each, int):
            for notification in some(each, fill.next):
                collector.add(*notification)
            fill.next += each
        else:
            collector.add("herald_position", each)


@pytest.fixture(autouse=True)
def from_one():
    fill.next = 1


def test_what_is_cleared_does_not_count():
    collector = Collector(10)
    fill(collector, 3, "A", 2)
    assert collector.take() == Batch(some(3), "A", True)
    collector.clear()
    assert collector.empty and collector.first_position is None
    fill(collector, "B", 1, "C")
    assert collector.first_position == (0, "B")
    assert collector.take() == Batch(some(1, 6), "C", True)


def test_nothing_is_taken_before_its_position():
    collector = Collector(10)
    assert collector.take() is None
    fill(collector, 3)
    assert collector.take() is None
    fill(collector, "p1")
    assert collector.take() == Batch(some(3), "p1", True)
    assert collector.take() is None


def test_a_batch_ends_at_the_last_position_that_fits():
    collector = Collector(10)
    fill(collector, 3, "p1", 4, "p2", 4, "p3", 1)
    assert collector.take() == Batch(some(7), "p2", True)
    assert collector.take() == Batch(some(4, 8), "p3", True)
    assert collector.take() is None


def test_a_batch_may_be_as_large_as_its_size():
    collector = Collector(10)
    fill(collector, 10)
    assert not collector.full and collector.take() is None
    fill(collector, "p1")
    assert collector.take() == Batch(some(10), "p1", True)


def test_a_larger_transaction_comes_in_parts():
    collector = Collector(10)
    fill(collector, 25, "p1", 2, "p2")
    assert collector.full
    assert collector.take() == Batch(some(10), None, False)
    assert collector.take() == Batch(some(10, 11), None, False)
    assert collector.take() == Batch(some(7, 21), "p2", True)


def test_a_part_is_taken_although_its_position_is_there():
    collector = Collector(10)
    fill(collector, 11, "p1")
    assert collector.take() == Batch(some(10), None, False)
    assert collector.take() == Batch(some(1, 11), "p1", True)


def test_positions_without_notifications_are_one():
    collector = Collector(10)
    fill(collector, "p1", "p2")
    assert collector.take() == Batch([], "p2", True)
    fill(collector, 2, "p3", "p4")
    assert collector.take() == Batch(some(2), "p4", True)


def test_first_position():
    collector = Collector(10)
    assert collector.first_position is None
    fill(collector, "p1", 1, "p2")
    assert collector.first_position == (0, "p1")
    collector.take()
    fill(collector, 2, "p3")
    assert collector.first_position == (2, "p3")


def test_stock_has_no_positions():
    collector = Collector(10, stock=True)
    assert collector.take() is None
    fill(collector, 13)
    assert collector.take() == Batch(some(10), None, True)
    assert collector.take() == Batch(some(3, 11), None, True)
    collector.add("herald_position", "an ordinary channel there")
    assert collector.take() == Batch([Notification("herald_position", "an ordinary channel there")], None, True)


def test_pauses_grow_to_the_longest():
    pauses = Pauses(0.1, 10, choose=lambda least, most: most)
    assert [pauses.next() for _ in range(4)] == [0.1, 0.2, 0.4, 0.8]
    assert [pauses.next() for _ in range(2000)][-1] == 10
    pauses.reset()
    assert pauses.next() == 0.1


def test_pauses_begin_at_zero():
    assert Pauses(0.1, 10, choose=lambda least, most: least).next() == 0
    assert all(0 <= Pauses(0.1, 10).after(3) <= 0.8 for _ in range(100))


def test_failures():
    failures = Failures(3, 4)
    for _ in range(2):
        failures.add(broke=False)
    for _ in range(3):
        failures.add(broke=True)
    assert failures.count == 5 and not failures.exhausted
    failures.add(broke=True)
    assert failures.exhausted
    failures.reset()
    assert failures.count == 0 and not failures.exhausted
    for _ in range(3):
        failures.add(broke=False)
    assert failures.exhausted
