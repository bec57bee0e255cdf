"""Senders, listeners, readers, and what cuts their connections."""

import re
import time
from typing import TYPE_CHECKING

from account import Account
from actors import BY_ITSELF, CANCELLED, GONE, POSITION, RESET, Actor
from harness.cluster import SUPERUSER
from link import Failed, Link, Lost
from nodes import lsn
from oracle import Wrong

if TYPE_CHECKING:
    from nodes import Node
    from story import Story

DATABASE = "postgres"
CHANNELS = tuple(f"orders_{number}" for number in range(5)) + ("bills",)
UNLOGGED = "gossip"
SENDERS_MAX = 20
SETUP = f"""
CREATE EXTENSION pg_herald;
CREATE TABLE ledger (sender integer, number integer, channel text, at timestamptz DEFAULT clock_timestamp(),
	PRIMARY KEY (sender, number));
-- Its pages are soon full of old versions. Removing those conflicts with the snapshots of queries on the standbys.
CREATE TABLE progress (sender integer PRIMARY KEY, number integer, filler text DEFAULT repeat('x', 500));
INSERT INTO progress SELECT generate_series(0, {SENDERS_MAX});
CREATE FUNCTION send(sender integer, first integer, count integer, channel text, length integer) RETURNS bigint LANGUAGE sql AS $$
	UPDATE progress SET number = first WHERE progress.sender = send.sender;
	INSERT INTO ledger SELECT sender, n, channel FROM generate_series(first, first + count - 1) n;
	SELECT count(pg_notify(channel, rpad(format('%s %s %s ', sender, n, length), length, 'x')))
	  FROM generate_series(first, first + count - 1) n;
$$;
"""
LOGGED = "SELECT herald.set_channel('orders_*', logged => true); SELECT herald.set_channel('bills', logged => true)"
LENGTHS = (20,) * 6 + (200,) * 4 + (7900,)
MANY = ((2000, 100), (300, 2000), (1, 300_000))  # how many, of how many characters; more than fits into one part
MANY_OF_STOCK = MANY[:2]
MANY_SHARE = 0.01
PAUSE_S = 0.06        # of a sender, at most
OFTEN, SELDOM = 0.05, 0.005
PATIENCE = "statement_timeout=20s"  # a client tries another server then
MISSING, DOUBLED, IGNORED = "missing", "doubled", "ignored"
ALL = 2 ** 31 - 1  # rows
NO_REASON = "herald.read() finds no reason now"
COMMITTING = "is still committing"
CONFLICT = "canceling wait for replay due to conflict with recovery"
NOT_LOADED = "pg_herald must be loaded via shared_preload_libraries"
NO_LISTEN = "cannot execute LISTEN during recovery"
UNCOVERED = "this standby cannot relay notifications"
REFUSED, WAITS_FOR_MODULE = "refused without the module", "refused by a standby whose primary was without the module"


def has_module(link: Link) -> bool:
    """Whether the session's server runs with pg_herald."""
    return bool(link.run("SELECT current_setting('herald.resume_wal_size', true)")[0][0])


def is_behind(link: Link, wal: int) -> bool:
    """Whether the session's server is a standby that has not replayed this WAL."""
    replayed = link.run("SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() END")[0][0]
    return bool(replayed) and lsn(replayed) < wal


class Sender(Actor):
    """Inserts rows and notifies of them, on the present primary."""

    kind = "sender"
    user = SUPERUSER

    def __init__(self, story: "Story", number: int, loses_some: bool):
        super().__init__(story, number, DATABASE, expendable=True)
        self.begin_block = "BEGIN; SET LOCAL synchronous_commit = off" if loses_some else "BEGIN"
        self.issued = 0
        self.committed: set[int] = set()
        self.doubtful: list[int] = []
        self.has_module = False

    def connect(self) -> Link:
        """To the server that accepts writes."""
        hosts = ",".join(str(node.socket_folder) for node in self.stage.chain.nodes)
        return Link(self.stage.chain.primary, DATABASE, f"host={hosts} user={self.user} target_session_attrs=read-write")

    def has_lost(self, why: str) -> None:
        """Waits a little."""
        self.asked_to_end.wait(0.05)

    def begin(self) -> None:
        """Looks up what became of a commit without an answer."""
        self.has_module = has_module(self.link)
        if self.doubtful:
            numbers = ",".join(map(str, self.doubtful))
            found = self.link.run(f"SELECT number FROM ledger WHERE sender = {self.number} AND number IN ({numbers})")
            self.stage.count(f"answers lost, {'committed' if found else 'not committed'}")
            self.committed.update(int(number) for number, in found)
            self.doubtful = []

    def act(self) -> None:
        """One transaction."""
        self.asked_to_end.wait(self.random.random() * PAUSE_S)
        if self.random.random() < MANY_SHARE:
            self.commit(*self._send(*self.random.choice(MANY if self.has_module else MANY_OF_STOCK)))
        else:
            self.commit(*self.few())

    def few(self) -> tuple[list[str], list[int]]:
        """The statements of a transaction with some notifications, and the numbers that it commits."""
        return self.random.choice((self._one, self._some, self._savepoints, self._rolled_back))()

    def commit(self, statements: list[str], numbers: list[int]) -> None:
        """Executes a transaction."""
        self.doubtful = numbers
        for sql in (self.begin_block, *statements):
            self.link.run(sql)
        if statements[-1] != "ROLLBACK":
            if self.random.random() < OFTEN:
                self.link.run(f"NOTIFY {UNLOGGED}")
            self.link.run("COMMIT")
        self.doubtful = []
        self.committed.update(numbers)

    # ---- internals ----

    def _send(self, count: int = 1, length: int = 0) -> tuple[list[str], list[int]]:
        first, self.issued = self.issued + 1, self.issued + count
        length = length or self.random.choice(LENGTHS)
        return [f"SELECT send({self.number}, {first}, {count}, '{self.random.choice(CHANNELS)}', {length})"], \
            list(range(first, first + count))

    def _one(self) -> tuple[list[str], list[int]]:
        return self._send()

    def _some(self) -> tuple[list[str], list[int]]:
        parts = [self._send(self.random.randrange(1, 4)) for _ in range(self.random.randrange(2, 5))]
        return [sql for part, _ in parts for sql in part], [number for _, part in parts for number in part]

    def _savepoints(self) -> tuple[list[str], list[int]]:
        (before, one), (lost, _), (kept, two), (after, three) = (self._send() for _ in range(4))
        return [*before, "SAVEPOINT a", *lost, "ROLLBACK TO a", "SAVEPOINT b", *kept, "RELEASE b", *after], one + two + three

    def _rolled_back(self) -> tuple[list[str], list[int]]:
        return [*self._send()[0], "ROLLBACK"], []


class Client(Actor):
    """Is cut off repeatedly, and resumes on any server from its last position."""

    kind = "client"
    channels_max = 3
    is_cut = True  # by a Cutter

    def __init__(self, story: "Story", number: int):
        super().__init__(story, number, DATABASE, expendable=True)
        self.account = Account(self.random.sample(CHANNELS, self.random.randrange(1, self.channels_max + 1)))
        self._insists = False  # on the server that it was connected to
        self._last: tuple[str, int] | None = None  # the server, and which start of it
        self._here: tuple[str, int] = ("", 0)
        self.connected_at = 0.0
        self.position_at = 0.0
        self.told = 0             # how often it had to read the table
        self.has_module = False   # its server
        self.is_behind = False    # its server, of what primaries have committed without the module

    def servers(self) -> list["Node"]:
        """Those that it may use."""
        return self.stage.servers()

    def connect(self) -> Link:
        """To one of them."""
        if not self._insists:
            self.node = self.random.choice(self.servers())
        self._here = self.node.name, self.node.starts
        link = Link(self.node, DATABASE, f"options='-c {self.limits()}'")
        self.has_module = has_module(link)
        self.is_behind = is_behind(link, self.stage.chain.present_from)
        self.connected_at = time.monotonic()
        return link

    def limits(self) -> str:
        """Settings of its sessions."""
        return PATIENCE

    def has_lost(self, why: str) -> None:
        """Waits a little, sometimes longer.  It does not hang, even if it has not come to resume for a long time."""
        self._lives()
        if self.pid:
            self.stage.count("cut off")
            self.account.note(f"cut off: {' '.join(why.split())[:80]}")
            self._insists = self.stage.is_logged and self.random.random() < 0.3
        self.account.goes_back()
        self.asked_to_end.wait(self.random.choice((0.02, 0.02, 0.1, 2)) * self.random.random())

    def must_be_cancelled(self, failed: Failed) -> None:
        """Goes on elsewhere; also if replay waits for the client, which waits for replay, or if there is no module."""
        said = str(failed)
        if CONFLICT in said:
            self.stage.count("conflicts with recovery")
        elif not self.has_module and (NOT_LOADED in said or NO_LISTEN in said):
            self.stage.count(REFUSED)
        elif UNCOVERED in said:
            if not (self.is_behind or self.stage.chain.module_is_absent(self.connected_at)):
                raise Wrong(f"on {self._here}: {said}")
            self.stage.count(WAITS_FOR_MODULE)
        else:
            super().must_be_cancelled(failed)
        self._lives()
        self.account.note(str(failed))
        self.account.goes_back()

    def finish(self) -> None:
        """Goes on until it has the marks."""
        while not self.stage.marks(self.account.channels) <= self.account.processed:
            if self.stage.is_late():
                return
            self._lives()
            self.act()

    def resumed(self) -> None:
        """Counts."""
        where = "first" if self._last is None else "same server" if self._last == self._here else \
            "after a restart" if self._last[0] == self._here[0] else "other server"
        self.stage.count(f"resumed, {where}")
        self.account.note(f"resumed on {self._here} after {self.account.position[-6:]}")

    def has_position(self, position: str) -> None:
        """Is sure of what came before, and stores both."""
        falsified = self.stage.falsify(self.account.unsure[-1] if self.account.unsure else None)
        if falsified == MISSING:
            self.account.unsure.pop()
        elif falsified == DOUBLED:
            self.account.unsure += self.account.unsure[-1:]
        self.account.is_sure(position)
        self.position_at = 0 if self.is_behind else time.monotonic()
        self._last = self._here

    def read_state(self, why: str, said: str = "") -> None:
        """Starts again from what the table shows; it counts as a reset if the client had a position. What the server said
        beside the reason is only shown."""
        had = self.account.processed | set(self.account.unsure)
        counts = self.account.position is not None
        self.told += 1
        if self.stage.ignores(self):
            self.account.forgets_position()
            return
        channels = ",".join(f"'{channel}'" for channel in self.account.channels)
        rows = self.link.run(f"SELECT sender, number FROM ledger WHERE channel IN ({channels})")
        self.account.reads({(int(sender), int(number)) for sender, number in rows})
        if counts:
            what = "it had what was lost" if had - self.account.processed else "nothing that it had was lost"
            self.stage.reset(self, why, what + said)

    def breaks_off(self) -> bool:
        """Whether it ends its connection now."""
        return self.random.random() < OFTEN and not self.asked_to_end.is_set()


def reason(said: str) -> str:
    """What the server said, without numbers and hint."""
    return re.sub(r" HINT.*", "", re.sub(r"\d+", "N", " ".join(said.split())))


class Listener(Client):
    """Resumes by herald.listen()."""

    kind = "listener"

    def begin(self) -> None:
        """Resumes, or reads the state."""
        after = f"'{self.account.position}'" if self.account.position else "NULL"
        self.link.run(f"BEGIN; LISTEN {POSITION}" + f"; LISTEN {RESET}" * self.random.randrange(2))
        self.link.notices.clear()
        (answers,) = self.link.run("SET LOCAL client_min_messages = debug1; SELECT " + ", ".join(
            f"herald.listen('{channel}', {after})" for channel in self.account.channels))
        told = [notice for notice in self.link.notices if "are not kept any more" in notice]
        self.link.run("COMMIT")
        if set(answers) == {"t"}:
            self.resumed()
        else:
            self.account.note(f"on {self._here} herald.listen() returned {answers} for {after[-7:-1]}: {told}")
            # A commit that was in the way of all channels may be over when herald.read() is asked.
            is_over = told and len(told) == answers.count("f") and all(COMMITTING in one for one in told)
            why_not = reason(told[0]) if is_over else self._why_not(after)
            said = f"; it said: {sorted(map(reason, told))}" if why_not == NO_REASON else ""
            self.read_state(f"herald.listen() returned false on the {self.stage.role(self.node)}: {why_not}", said)

    def act(self) -> None:
        """Takes what comes."""
        found = self.link.notifications(0.2)
        breaks_off = self.breaks_off()
        if breaks_off:
            found = found[:self.random.randrange(len(found) + 1)]
        for channel, payload in found:
            if channel == POSITION:
                self.has_position(payload)
            elif channel == RESET:
                self.read_state(f"{RESET} on the {self.stage.role(self.node)}")
            else:
                self.account.receives(channel, payload)
        if breaks_off:
            raise Lost(BY_ITSELF)

    def _why_not(self, after: str) -> str:
        """Why this position is of no use here: herald.read() says so, if it is still true, once it has looked at all that a
        listener would receive."""
        try:
            self.link.run(f"SELECT FROM herald.read('{{{','.join(self.account.channels)}}}'::text[], {after}, {ALL})")
        except Failed as failed:
            if failed.sqlstate == GONE:
                return reason(str(failed))
        return NO_REASON


class SteadyListener(Listener):
    """Stays connected to a standby, as long as that lets it."""

    kind = "steady listener"
    is_cut = False
    listens = 0  # since which connection

    def servers(self) -> list["Node"]:
        """The standbys."""
        return self.stage.chain.standbys

    def begin(self) -> None:
        """As any listener."""
        super().begin()
        self.listens = self.links

    def breaks_off(self) -> bool:
        """Never."""
        return False

    def told_so_far(self) -> tuple[int, int] | None:
        """What changes when it has a reset, or is cut off; None: it does not listen yet."""
        return (self.links, self.told) if self.pid and self.listens == self.links else None


class Reader(Client):
    """Resumes by herald.read(), each time in another session."""

    kind = "reader"

    def begin(self) -> None:
        """Nothing is to be done before it reads."""
        self.has_resumed = False

    def act(self) -> None:
        """Reads once."""
        after = f"'{self.account.position}'" if self.account.position else "NULL"
        channels = ",".join(self.account.channels)
        try:
            rows = self.link.run(f"SELECT position, channel, payload FROM herald.read('{{{channels}}}'::text[], {after},"
                                 f" {self.random.choice((1, 10, 1000))}, '{self.random.choice((0, 20, 300))} ms')")
        except Failed as failed:
            if failed.sqlstate != GONE or not self.has_module:
                raise
            self.account.note(f"on {self._here} herald.read() failed for {after[-7:-1]}: {failed}")
            self.read_state(f"herald.read() failed on the {self.stage.role(self.node)}: {reason(str(failed))}")
            return
        if self.account.position is None:
            self.read_state("first")
        elif not self.has_resumed:
            self.resumed()
        self.has_resumed = True
        if self.random.random() < OFTEN:
            raise Lost(BY_ITSELF)  # before it has processed them all: only the last row's position is of use
        for _, channel, payload in rows:
            if payload:
                self.account.receives(channel, payload)
        self.has_position(rows[-1][0])
        if self.breaks_off():
            raise Lost(BY_ITSELF)


class Cutter(Actor):
    """Terminates backends of clients."""

    kind = "cutter"

    def connect(self) -> Link:
        """To a server whose turn it is."""
        self.node = self.random.choice(self.stage.servers())
        return Link(self.node, DATABASE)

    def has_lost(self, why: str) -> None:
        """Goes to another server."""

    def act(self) -> None:
        """Terminates one."""
        self.pause(self.random.random() * 0.5)
        pids = [client.pid for client in self.stage.clients if client.is_cut and client.pid and client.node is self.node]
        if pids:
            self.link.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = {self.random.choice(pids)}")
        raise Lost(BY_ITSELF)
