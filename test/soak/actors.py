"""The actors: senders and several kinds of listeners, each a thread with a connection."""

import threading
import time
from random import Random
from typing import TYPE_CHECKING

from link import Failed, Link, Lost
from oracle import LOST, Account, Wrong, write

if TYPE_CHECKING:
    from stage import Stage

CHANNELS = tuple(f"c{number}" for number in range(6))
RESET = "herald_reset"
POSITION = "herald_position"
MISSED = "it has missed notifications"
CANCELLED = "57014"
GONE = "55000"
BY_ITSELF = "by itself"
LENGTHS = (20,) * 6 + (200,) * 6 + (2000,) * 2 + (7900,)
LARGE_MAX = 900_000          # characters of a large payload
BIG_PART = 0.005             # the fraction of transactions that are big
FEW_MS = (1, 3, 10)
CATCH_UP_S = 60

# Listens on a channel without notifications, from a position that may be ahead of those sent to this session.
ANOTHER = "SELECT herald.listen('another', (SELECT position FROM herald.read('another') LIMIT 1))"


class Actor(threading.Thread):
    """A thread that uses one connection after another, until it has finished on one.

    expendable  its statements may be cancelled, and its connections terminated
    cut_off     the probability that the latter is done
    """

    kind = ""
    cut_off = 0.05

    def __init__(self, stage: "Stage", number: int, database: str, expendable: bool = False):
        super().__init__(daemon=True, name=f"{self.kind} {number} in {database}")
        self.stage = stage
        self.number = number
        self.database = database
        self.expendable = expendable
        self.random = Random(f"{stage.seed} {self.name}")
        self.link: Link | None = None
        self.pid = 0
        self.links = 0
        self.alive_at = time.monotonic()
        self.asked_to_end = threading.Event()
        self.complete = False

    def run(self) -> None:
        """Uses one connection after another; Wrong, or any other exception, ends the run."""
        try:
            while not self.complete and not self.stage.is_over:
                try:
                    self._live()
                except Lost as lost:
                    self.has_lost(str(lost))
                except Failed as failed:  # it does not know which statement was cancelled
                    self.must_be_cancelled(failed)
                finally:
                    self._leave()
        except Exception as problem:
            self.stage.report(f"{self.name}, {self.links}. connection: {type(problem).__name__}: {problem}")

    def end(self) -> None:
        """Asks it to finish."""
        self.asked_to_end.set()

    def connect(self) -> Link:
        """A new connection."""
        return Link(self.stage.cluster, self.database)

    def _live(self) -> None:
        self.link = self.connect()
        self.links += 1
        self.pid = self.link.pid
        self.begin()
        while not self.asked_to_end.is_set():
            self._lives()
            self.act()
        self.finish()
        self.complete = True

    def _leave(self) -> None:
        self.pid = 0
        if self.link is not None:
            self.link.close(politely=not self.expendable or self.random.random() < 0.5)
            self.link = None

    def has_lost(self, why: str) -> None:
        """Handles the end of its connection; Wrong unless it is expendable or has missed notifications."""
        if MISSED in why:
            self.stage.count("overruns told")
        elif not self.expendable:
            raise Wrong(f"lost its connection: {why}")

    def must_be_cancelled(self, failed: Failed) -> None:
        """Raises the failure again, unless a disturbance has caused it."""
        if not self.expendable or failed.sqlstate != CANCELLED:
            raise failed
        self.stage.count("cancelled")

    def _lives(self) -> None:
        self.alive_at = time.monotonic()

    def begin(self) -> None:
        """Called on each new connection."""

    def act(self) -> None:
        """Called repeatedly."""

    def finish(self) -> None:
        """Called before it ends."""

    def pause(self, seconds: float) -> None:
        """Waits for this time, or until it is asked to finish."""
        end = time.monotonic() + seconds
        while not self.asked_to_end.is_set() and (left := end - time.monotonic()) > 0:
            self._lives()
            self.asked_to_end.wait(min(left, 1))


class Sender(Actor):
    """Notifies, in all possible ways."""

    kind = "sender"

    def begin(self) -> None:
        self.sender = f"s{self.number}.{self.links}"

    def act(self) -> None:
        self.asked_to_end.wait(self.random.random() * 2 * self.stage.pause_s)
        styles = [self._plain] * 8 + [self._function] * 4 + [self._savepoints] * 4 + [self._rolled_back] * 2
        if self.random.random() < BIG_PART:
            is_large = self.stage.has_herald(self.database) and self.random.random() < 0.7
            styles = [self._large if is_large else self._many]
        try:
            self.random.choice(styles)()
        except Failed as failed:
            if failed.sqlstate != CANCELLED:
                raise
            self.stage.count("cancelled")
            self.link.run("ROLLBACK")

    # ---- styles ----

    def _plain(self) -> None:
        channel = self.random.choice(CHANNELS)
        self._commit({channel: 1}, lambda first: [f"NOTIFY {channel}, '{self._write(first[channel])}'"])

    def _function(self) -> None:
        counts = {channel: self.random.randrange(1, 4)
                  for channel in self.random.sample(CHANNELS, self.random.choice((1, 1, 1, 3)))}
        self._commit(counts, lambda first: ["SELECT " + ", ".join(
            f"pg_notify('{channel}', '{self._write(first[channel] + i)}')"
            for channel, count in counts.items() for i in range(count))])

    def _savepoints(self) -> None:
        one, two = self.random.sample(CHANNELS, 2)
        timeout = [f"SET LOCAL statement_timeout = {self.random.choice(FEW_MS)}"]
        timeout *= self.random.random() < 0.1
        self._commit({one: 2, two: 1}, lambda first: [
            "BEGIN", *timeout, f"NOTIFY {one}, '{self._write(first[one])}'",
            "SAVEPOINT a", f"NOTIFY {one}, '{self._write(LOST)}'", "ROLLBACK TO a",
            "SAVEPOINT b", f"INSERT INTO soak VALUES ('{two}', '{self._write(first[two])}')", "RELEASE b",
            f"NOTIFY {one}, '{self._write(first[one] + 1)}'", "COMMIT"])

    def _rolled_back(self) -> None:
        channel = self.random.choice(CHANNELS)
        for sql in ("BEGIN", f"NOTIFY {channel}, '{self._write(LOST)}'",
                    f"SELECT pg_notify('{channel}', '{self._write(LOST)}')", "ROLLBACK"):
            self.link.run(sql)

    def _large(self) -> None:
        channel = self.random.choice(CHANNELS)
        length = self.random.randrange(20_000, LARGE_MAX)
        self._commit({channel: 1}, lambda first: [
            f"SELECT pg_notify('{channel}', '{write(self.sender, first[channel], length)}')"])

    def _many(self) -> None:
        """Sends more than fits into a segment of the queue."""
        self.generate(*self.random.choice(((self.random.randrange(500, 3000), 100), (400, 2000))))

    def generate(self, count: int, length: int) -> None:
        """Sends `count` notifications in one transaction on one channel."""
        channel = self.random.choice(CHANNELS)
        self._commit({channel: count}, lambda first: [
            f"SELECT count(pg_notify('{channel}', rpad('{self.sender} ' || n || ' {length} ', {length}, 'x')))"
            f" FROM generate_series({first[channel]}, {first[channel] + count - 1}) n"])

    # ---- internals ----

    def _write(self, number: int | str) -> str:
        return write(self.sender, number, self.random.choice(LENGTHS))

    def _commit(self, counts: dict[str, int], statements) -> None:
        ledger = self.stage.ledger
        first = ledger.issue(self.database, self.sender, counts)
        for sql in statements(first):
            self.link.run(sql)
        ledger.commit(self.database, self.sender, counts)


class Flood(Sender):
    """Fills some segments of the queue by itself now and then, in a database without listeners."""

    kind = "flood"

    def act(self) -> None:
        self.pause(self.random.random())
        for _ in range(self.random.randrange(40)):
            self.generate(10, 2000)


class Listener(Actor):
    """Listens on all channels, and reads what arrives."""

    kind = "listener"
    channels_to_choose = (len(CHANNELS),)
    leads = False         # whether the order in which it receives is that of its database
    compares_for_s = 0.0  # the time to wait for its own notification
    own = ""              # the channel of its own notifications

    def begin(self) -> None:
        self.account = Account(self.stage.ledger, self.database, self.leads)
        self.listen_to_itself()
        if self.number % 2:
            self.link.run(f"LISTEN {RESET}")
        self.listen(*self.random.sample(CHANNELS, self.random.choice(self.channels_to_choose)))

    def listen_to_itself(self) -> None:
        """Listens on the channel of its barriers."""
        self.own = f"own_{self.kind}_{self.number}_{self.links}"
        self.barriers = 0
        self.link.run(f"LISTEN {self.own}")

    def listen(self, *channels: str) -> None:
        """Executes LISTEN for these channels, in one transaction."""
        self.account.listens(*channels)
        self.link.run("; ".join(f"LISTEN {channel}" for channel in channels))
        self.account.has_begun()

    def act(self) -> None:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            self.take(self.link.notifications(0.1))

    def take(self, notifications: list[tuple[str, str]]) -> None:
        """Accounts for received notifications."""
        for channel, payload in notifications:
            if channel == self.own:
                self.heard_own = payload
            elif channel == RESET:
                self.stage.count("overruns told")
                self.account.has_missed()
            elif channel == POSITION:
                self.has_position(payload)
            else:
                self.account.hears(channel, payload)
        self._lives()
        self.stage.count("heard", len(notifications))
        if notifications:
            self.after_taking()

    def has_position(self, position: str) -> None:
        """Handles a position from which it can resume."""
        raise Wrong(f"was told of position {position}")

    def after_taking(self) -> None:
        """Called after notifications were taken: they do not arrive again."""
        self.be_sure()

    def be_sure(self) -> None:
        """Records that what it has received will not be received again."""
        if self.account.unsure and self.stage.falsify(self):
            self.account.loses_one()
        self.account.is_sure()

    def compare(self) -> None:
        """Notifies itself: when that arrives, all that was committed before must have arrived."""
        committed = self.stage.ledger.committed(self.database)
        self.barriers += 1
        self.heard_own = None
        self.link.run(f"NOTIFY {self.own}, '{self.barriers}'")
        # From 19 on, a stock server sends a listener no signal if another sender is about to, also if it is the sender
        # itself: then its own notification may come after the answer. So it may if the wait for earlier commits is cancelled.
        is_late = self.expendable or not self.stage.has_herald(self.database) and self.link.major >= 19
        end = time.monotonic() + (CATCH_UP_S if is_late else self.compares_for_s)
        while (found := self.link.notifications()) or self.heard_own is None and time.monotonic() < end:
            self.take(found)
        if self.heard_own != str(self.barriers):
            raise Wrong("did not hear its own notification in time")
        self.account.has_heard_all(committed)
        self.stage.count("compared")

    def finish(self) -> None:
        self.compare()


class Watcher(Listener):
    """Listens on all channels from beginning to end; the first one in each database leads."""

    kind = "watcher"

    def begin(self) -> None:
        self.leads = self is self.stage.leader(self.database)
        super().begin()

    def act(self) -> None:
        super().act()
        if self.random.random() < 0.2:
            self.compare()


class Visitor(Listener):
    """Connects and disconnects, and changes the channels on which it listens."""

    kind = "visitor"
    channels_to_choose = (1, 2, 3)

    def act(self) -> None:
        end = time.monotonic() + self.random.random()
        while time.monotonic() < end and not self.asked_to_end.is_set():
            self.take(self.link.notifications(0.05))
        self.random.choice((self._change, self._change, self.compare, self._take_back, self._go))()

    def _change(self) -> None:
        self.compare()
        gone = self.random.choice(sorted(self.account.channels))
        more = self.random.choice(CHANNELS)
        self.link.run(f"UNLISTEN {gone}")
        self.take(self.link.notifications())
        self.account.listens_no_more(gone)
        self.listen(more)

    def _take_back(self) -> None:
        """Rolls LISTEN and UNLISTEN back, which must have no effect."""
        others = [channel for channel in CHANNELS if channel not in self.account.channels]
        if others:
            self.link.run("BEGIN; SAVEPOINT a; "
                          f"LISTEN {others[0]}; UNLISTEN *; ROLLBACK TO a; SELECT 1; COMMIT")
        self.compare()

    def _go(self) -> None:
        self.compare()
        raise Lost(BY_ITSELF)


class Laggard(Listener):
    """Stays in a transaction, or does not read its socket, for a long time; then reads everything."""

    kind = "laggard"

    def act(self) -> None:
        in_transaction = self.random.random() < 0.6
        try:
            if in_transaction:
                self.link.run("BEGIN; SELECT 1")
            self.pause(self.random.random() * self.stage.lag_s)
            if in_transaction:
                self.link.run("COMMIT")
            end = time.monotonic() + 1
            while time.monotonic() < end:
                self.take(self.link.notifications(0.1))
            self.compare()
        except Failed as failed:
            self.must_be_cancelled(failed)
            self.link.run("ROLLBACK")


class Flicker(Actor):
    """Executes LISTEN and UNLISTEN; all flickers together 1,000 times a second."""

    kind = "flicker"

    def act(self) -> None:
        began = time.monotonic()
        statements = max(2, self.stage.flickers_a_second // 10)
        for _ in range(statements // 2):
            channel = self.random.choice((self.random.choice(CHANNELS), f"f{self.random.randrange(50)}"))
            for what in ("LISTEN", "UNLISTEN"):
                try:
                    self.link.run(f"{what} {channel}")
                except Failed as failed:
                    if failed.sqlstate != CANCELLED:
                        raise
        self.link.notifications()
        self.stage.count("listens", statements // 2 * 2)
        self.asked_to_end.wait(max(0, 0.1 - (time.monotonic() - began)))


class Client(Listener):
    """Is cut off repeatedly, and resumes from its last position: it has one account, with nothing missed."""

    kind = "client"
    cut_off = 0.3

    def __init__(self, stage: "Stage", number: int, database: str, channels: tuple[int, ...]):
        super().__init__(stage, number, database, expendable=True)
        self.account = Account(stage.ledger, database)
        self.channels = self.random.sample(CHANNELS, self.random.choice(channels))
        self.account.listens(*self.channels)
        self.position: str | None = None
        self.position_era = 0

    def begin(self) -> None:
        if self.links > 1:
            self.stage.count("cut off")
            self.pause(self.random.choice((0, 0, 0, 0.2, 2)) * self.random.random())
        self.stage.count("received again", self.account.goes_back())

    def has_position(self, position: str) -> None:
        self.position, self.position_era = position, self.stage.era
        self.be_sure()

    def after_taking(self) -> None:
        """Does nothing: only a position makes it sure."""

    def from_now_on(self, *channels: str) -> None:
        """Starts again from now: notifications are not kept any more, or there is no position yet."""
        if self.position is not None:
            if self.stage.keeps_since(self.position_era):
                raise Wrong(f"cannot resume {channels}, but everything is kept")
            self.stage.count("could not resume")
        self.account.has_missed(*channels)

    def after(self) -> str:
        """The position as an SQL expression."""
        return f"'{self.position}'" if self.position else "NULL"


class Resumer(Client):
    """Resumes by herald.listen(); sometimes reads slowly."""

    kind = "resumer"
    compares_for_s = CATCH_UP_S

    def begin(self) -> None:
        super().begin()
        self.listen_to_itself()
        self.link.run(f"BEGIN; LISTEN {POSITION}" + f"; LISTEN {RESET}" * self.random.randrange(2))
        channels = self.random.sample(self.channels, len(self.channels))
        (answers,) = self.link.run("SELECT " + ", ".join(
            f"herald.listen('{channel}', {self.after()})" for channel in channels))
        self.link.run("COMMIT")
        self.stage.count("resumed", answers.count("t"))
        if gone := [channel for channel, answer in zip(channels, answers) if answer == "f"]:
            self.from_now_on(*gone)

    def act(self) -> None:
        era = self.stage.era
        if self.random.random() < 0.3 and self.link.run(ANOTHER) != [("t",)] and self.stage.keeps_since(era):
            raise Wrong("cannot listen from a position of just now")
        if self.random.random() < 0.02:
            self.asked_to_end.wait(self.random.random())
        found = self.link.notifications(0.05)
        if self.random.random() < 0.08:
            self.take(found[:self.random.randrange(len(found) + 1)])
            raise Lost(BY_ITSELF)
        self.take(found)
        if self.random.random() < 0.02:
            self.compare()

    def finish(self) -> None:
        self.compare()
        end = time.monotonic() + CATCH_UP_S
        while self.account.unsure:
            if time.monotonic() > end:
                raise Wrong("was told of no position after what it has heard")
            self.take(self.link.notifications(0.1))


class Reader(Client):
    """Resumes by herald.read(), each time in another session."""

    kind = "reader"

    def act(self) -> None:
        self._read(self.random.choice((1, 10, 1000)), self.random.choice((0, 0, 20, 300)))
        if self.random.random() < 0.1:
            raise Lost(BY_ITSELF)

    def finish(self) -> None:
        """Reads until it has everything: a notification can be readable a moment after its commit was answered."""
        committed = self.stage.ledger.committed(self.database)
        end = time.monotonic() + CATCH_UP_S
        while True:
            self._read(1000, 20)
            try:
                self.account.has_heard_all(committed)
                return
            except Wrong:
                if time.monotonic() > end:
                    raise

    def _read(self, rows_max: int, wait_ms: int) -> None:
        (channel,) = self.channels
        begins = self.position is None
        try:
            rows = self.link.run("SELECT position, payload FROM herald.read("
                                 f"'{channel}', {self.after()}, {rows_max}, '{wait_ms} ms')")
        except Failed as failed:
            if failed.sqlstate != GONE:
                raise
            self.from_now_on(channel)
            self.position = None
            return
        if begins:
            self.from_now_on(channel)
        if self.random.random() < 0.1:
            return  # as if cut off before it has processed them all: only the last row's position is of use
        self.take([(channel, payload) for _, payload in rows if payload])
        self.has_position(rows[-1][0])
        self.stage.count("reads")
