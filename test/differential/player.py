"""Plays a schedule on both servers, and compares everything that their clients receive.

The answer to a step is compared message by message: results, command tags, errors, notices, the
transaction state, and the notifications at their places. If something arrives before ReadyForQuery
on one server, it has to arrive before it on the other.

After a step a barrier shows that nothing else will arrive. A control connection, which listens on
all channels, notifies a private channel; when it receives that itself, everything committed earlier
has been dispatched. Then every idle session must receive the barrier; or, if it does not listen on that
channel any more, it is sent a SELECT, before whose answer it receives all that is there for it. A
session in a transaction block must receive nothing.

A step with a `first` has no barrier before it: another session has notified, and has been answered. The
notifications that arrive with the answer to the step must be the same; their places among its other
messages may differ. If the step does not change the listened channels, the control connection has received
its own notification before: pg_herald may have to wait for a commit in progress, which is a documented
difference. An UNLISTEN must not miss the notification even then.

Not compared, because it is a documented difference: what a session that already listens receives on
another channel that was notified after it last read and before the commit of its LISTEN. A stock
server (up to 18 always, later ones sometimes) delivers it, pg_herald does not. Steps that could show
it are left out; see test_known_difference.py. Two other differences are removed before answers are
compared: is_denied() and is_prepare_refused().
"""

from dataclasses import dataclass, field
from itertools import groupby, pairwise

from schedule import SYNC, Schedule, Step, script
from sessions import BARRIER, BEGINNING, Session, Side, database_of
from statements import SESSIONS, plain

ANSWER_S = 30       # the time to wait for a message
ANSWER_AGAIN_S = 8  # the same, after the first that did not arrive, so that shrinking comes to an end
SHOWN_CHARACTERS = 300
PREPARE_REFUSED = ("E", (("M", "PREPARE TRANSACTION is refused"),))
CHANNELS_QUERY = "SELECT * FROM pg_listening_channels() channel ORDER BY channel COLLATE \"C\""


class Difference(AssertionError):
    """The servers differ."""


class NoAnswer(Difference):
    """A server did not answer in time, or is gone."""


@dataclass
class Known:
    """The state of a session, from which the player decides whether a step could show the known difference."""

    listening: frozenset[str] = frozenset()
    in_block: bool = False
    ended: bool = False             # it has ended a transaction, and not read since
    changing: bool = False          # in this block it may change the channels on which it listens
    to_listen: set[str] = field(default_factory=set)  # in this block
    to_notify: set[str] = field(default_factory=set)  # in this block
    missed: set[str] = field(default_factory=set)     # notified by other sessions during this block
    unread: set[str] = field(default_factory=set)     # notified since its last barrier: see _may_leave_unread()

    def further(self, channels) -> set[str]:
        """The channels on which it does not listen yet; empty if it listens on none, including those just begun."""
        listens = self.listening or (self.ended and self.to_listen)
        return set(channels) - self.listening if listens else set()


class Player:
    """Plays schedules on two sides, which keep their connections between schedules."""

    def __init__(self, *sides: Side):
        self.sides = sides
        self.connected = False
        self.limit_s = ANSWER_S
        self.barriers = 0
        self.version = 0  # of the servers; 0 if unknown
        self.steps_played = 0
        self.notifications = 0

    def play(self, schedule: Schedule) -> None:
        """Raises Difference if the servers differ; its text has the steps played as a script."""
        self.mixed = schedule.mixed
        self.played: list[Step] = []
        try:
            self._begin()
            for step in schedule.steps:
                if self._allowed(step):
                    self._step(step)
            for session in range(SESSIONS):
                self._step(Step(session, "simple", (plain("ROLLBACK", ends=True),)))
        except Difference as difference:
            self.connected = False
            raise Difference(f"{difference}\n\n{self._script()}") from None
        except OSError as error:
            self.connected = False
            if isinstance(error, TimeoutError):
                self.limit_s = ANSWER_AGAIN_S
            raise NoAnswer(f"{type(error).__name__}: {error}\n\n{self._script()}") from None
        except BaseException:
            self.connected = False
            raise

    def close(self) -> None:
        """Closes all connections."""
        for side in self.sides:
            side.close()
        self.connected = False

    # ---- one step ----

    def _step(self, step: Step) -> None:
        if step.first:
            self._first(step.first)
            if not any(statement.changes for statement in step.statements):
                self._compare(self._tell(database_of(step.session)), "all that was notified")
        self.played.append(step)
        self.steps_played += 1
        known = self.known[step.session]
        if not step.first:
            self._expect_silence(step.session)
        if step.how == "herald":
            for side in self.sides:
                if side.has_herald:
                    side.sessions[step.session].answer(side.sessions[step.session].start(step))
            return

        if step.how == "reconnect":
            for side in self.sides:
                side.reconnect(step.session)
            self.known[step.session] = Known()
            return

        sessions = self._both(step.session)
        readies = [session.start(step) for session in sessions]
        answers = [session.answer(number) for session, number in zip(sessions, readies)]
        for session, answer in zip(sessions, answers):
            session.learn(step, answer)
            self._expect_none_in_block(session, answer)
        if step.first:
            self._compare([notifications(answer) for answer in answers],
                          f"what connection {step.session} has heard with the answer")
            answers = [[message for message in answer if message[0] != "A"] for answer in answers]
        self._compare(answers, f"the answer to connection {step.session}")
        if answers[0][-1] == ("end",):
            raise Difference("both servers have ended the connection")

        self._learn(step, known)
        if not known.in_block or sessions[0].status == "I" or any(s.ends for s in step.statements):
            self._barrier(step.session)
        known.in_block = sessions[0].status != "I"
        if not known.in_block:
            self._leave_block(step.session, known)

    def _first(self, step: Step) -> None:
        """Lets another session notify, without a barrier."""
        self.played.append(step)
        self._expect_silence(step.session)
        sessions = self._both(step.session)
        readies = [session.start(step) for session in sessions]
        answers = [session.answer(number) for session, number in zip(sessions, readies)]
        for session, answer in zip(sessions, answers):
            session.learn(step, answer)
        self._compare(answers, f"the answer to connection {step.session}")
        for number, known in enumerate(self.known):
            if known.in_block and database_of(number) == database_of(step.session):
                for statement in step.statements:
                    known.missed |= statement.notifies

    def _learn(self, step: Step, known: Known) -> None:
        for statement in step.statements:
            known.to_listen |= statement.listens
            known.to_notify |= statement.notifies
            known.changing |= statement.changes
            # Outside of a block, Sync ends a transaction of the pipeline, too.
            known.ended |= statement.ends or statement is SYNC and not known.in_block

    def _leave_block(self, number: int, known: Known) -> None:
        known.to_listen.clear()
        known.to_notify.clear()
        known.missed.clear()
        known.ended = False
        if known.changing:
            known.changing = False
            answers = [session.ask(CHANNELS_QUERY) for session in self._both(number)]
            self._compare(answers, f"what connection {number} listens to")
            known.listening = frozenset(message[1][6:] for message in answers[0] if message[0] == "D")

    # ---- the known difference ----

    def _allowed(self, step: Step) -> bool:
        """False for a step that could show the known difference, or is not worth playing."""
        known = self.known[step.session]
        if step.first and not self._first_allowed(step):
            return False
        if step.how == "reconnect":
            return True
        if step.how == "herald" or any("taking" in s.sql or "takes" in s.sql for s in step.statements):
            # Within one transaction, duplicates are only removed between notifications of the same queue.
            return not known.in_block
        if step.how == "pipeline" and _goes_on_after_end(step):
            return False
        if step.statements[0].in_block and len(step.statements) == 1 and not known.in_block:
            return False  # it would fail, and the schedule has enough other errors

        # It may have missed something on a channel on which it starts to listen only now ...
        notified, ended = set(known.to_notify), known.ended
        for statement in step.statements:
            if known.further(statement.listens) & (known.missed | known.unread):
                return False
            # ... even a notification of its own, if it does not read in between.
            if ended and set(statement.listens) & notified:
                return False
            notified |= statement.notifies
            ended |= statement.ends

        # Other sessions may have such a LISTEN in a transaction that is still open.
        if known.in_block and not any(statement.ends for statement in step.statements):
            return True
        return not any(other.further(other.to_listen) & notified
                       for number, other in enumerate(self.known)
                       if number != step.session and other.in_block
                       and database_of(number) == database_of(step.session))

    def _first_allowed(self, step: Step) -> bool:
        """Whether both are idle, and in one database. (In a mixed schedule the order of arrival is random.)"""
        return not self.mixed and step.session != step.first.session and \
            database_of(step.session) == database_of(step.first.session) and \
            not self.known[step.session].in_block and not self.known[step.first.session].in_block and \
            self._allowed(step.first)

    # ---- waiting ----

    def _barrier(self, stepping: int) -> None:
        """Checks that all that was committed has arrived everywhere, and is the same on both servers."""
        database = database_of(stepping)
        told = self._tell(database)
        number = str(self.barriers)
        if self.mixed:
            for side in self.sides:
                side.natives[database].ask(f"NOTIFY {BARRIER}, '{number} native'")
        self._compare(told, "all that was notified")
        channels = {message[2] for message in told[0]} - {BARRIER}
        self.notifications += len(told[0]) - 1

        for session in range(SESSIONS):
            if database_of(session) != database:
                continue
            known = self.known[session]
            if session != stepping and known.in_block:
                known.missed |= channels
            elif self._both(session)[0].status == "I":
                heard = [self._hear(one, number) for one in self._both(session)]
                self._compare(heard, f"what connection {session} hears")
                if self._listens_to_barrier(self._both(session)[0]) or not known.listening:
                    known.unread.clear()
                elif self._may_leave_unread():
                    known.unread |= channels

    def _may_leave_unread(self) -> bool:
        """From 19 on a stock server does not let every listener read everything; a barrier for it does."""
        if self.version == 0:
            answer = self.sides[0].controls[0].ask("SHOW server_version_num")
            self.version = next(int(message[1][6:]) for message in answer if message[0] == "D")
        return self.version >= 190000

    def _tell(self, database: int) -> list[list[tuple]]:
        """The control connections notify the next barrier; returns what they have received up to it."""
        self.barriers += 1
        for side in self.sides:
            side.controls[database].send(("Q", f"NOTIFY {BARRIER}, '{self.barriers}'\0".encode()))
        return [notifications(side.controls[database].answer(1)) for side in self.sides]

    def _hear(self, session: Session, number: str) -> list[tuple]:
        if not self._listens_to_barrier(session):
            return notifications(session.ask("SELECT 1"))
        # In a mixed schedule either of the two may come first.
        return session.until_barriers(number, *([f"{number} native"] if self.mixed else []))

    def _listens_to_barrier(self, session: Session) -> bool:
        number = session.side.sessions.index(session)
        known = self.known[number]
        return BARRIER in known.listening and not known.changing

    def _expect_silence(self, number: int) -> None:
        """Checks that a connection has received nothing between its steps and barriers, as in a block."""
        for side in self.sides:
            if messages := side.sessions[number].at_hand():
                raise Difference(f"{side.name}: connection {number} got unasked: {shown(messages)}")

    def _expect_none_in_block(self, session: Session, answer: list[tuple]) -> None:
        heard = []
        for message in answer:
            if message[0] == "A":
                heard.append(message)
            elif message[0] == "Z":
                if message[1] != "I" and heard:
                    raise Difference(f"{session.side.name}: notified in a transaction block: {shown(heard)}")
                heard = []

    # ---- comparing ----

    def _compare(self, answers: list[list[tuple]], what: str) -> None:
        stock, herald = (self._comparable(answer) for answer in answers)
        if stock != herald:
            raise Difference(f"{what} differs\n  {self.sides[0].name:8}{shown(stock)}\n"
                             f"  {self.sides[1].name:8}{shown(herald)}")

    def _comparable(self, messages: list[tuple]) -> list[tuple]:
        messages = [message for number, message in enumerate(messages)
                    if (message[0] != "A" or message[2] != BARRIER) and
                    not (message[0] in "T2" and is_denied(messages[number + 1]))]
        messages = [PREPARE_REFUSED if is_prepare_refused(message) else message for message in messages]
        if not self.mixed:
            return messages
        result = []
        for is_notification, run in groupby(messages, lambda message: message[0] == "A"):
            result += sorted(run, key=repr) if is_notification else run
        return result

    # ---- beginning ----

    def _begin(self) -> None:
        """Brings every connection into the state in which schedules begin."""
        if not self.connected:
            for side in self.sides:
                side.connect()
                side.limit(self.limit_s)
            self.connected = True
        self.known = [Known(listening=frozenset([BARRIER])) for _ in range(SESSIONS)]
        sessions = [session for side in self.sides for session in side.sessions]
        for session in sessions:
            session.send(*(("Q", sql.encode() + b"\0") for sql in BEGINNING))
        for session in sessions:
            session.answer(len(BEGINNING))
            session.prepared.clear()
        self._end_two_phases()
        mixed, self.mixed = self.mixed, True  # the last schedule may have been mixed
        for session in (0, SESSIONS - 1):
            self._barrier(session)
        self.mixed = mixed

    def _end_two_phases(self) -> None:
        for side in self.sides:
            for message in side.controls[0].ask("SELECT gid, database FROM pg_prepared_xacts"):
                if message[0] == "D":
                    number = int(message[1].split("of session ")[1][0])
                    side.controls[database_of(number)].ask(f"ROLLBACK PREPARED 'of session {number}'")

    def _both(self, number: int) -> list[Session]:
        return [side.sessions[number] for side in self.sides]

    def _script(self) -> str:
        return script(self.played, f"-- in databases made by setup.sql; in each connection first: "
                      f"{'; '.join(BEGINNING[1:])};")


def _goes_on_after_end(step: Step) -> bool:
    """Whether a pipeline goes on after the end of a transaction without a Sync. A server that has to wait there for the
    next message is idle, and may deliver or not."""
    return any(one.ends and after is not SYNC for one, after in pairwise(step.statements))


def is_denied(message: tuple) -> bool:
    """Without EXECUTE on pg_notify() the error comes at the first row with pg_herald, and before it on stock."""
    return message[0] == "E" and ("M", "permission denied for function pg_notify") in message[1]


def is_prepare_refused(message: tuple) -> bool:
    """If there are two reasons to refuse PREPARE TRANSACTION, either may be given."""
    return message[0] == "E" and any(field == "M" and (
        text.startswith("cannot PREPARE a transaction that has executed LISTEN") or
        text.endswith("is already in use")) for field, text in message[1])


def notifications(messages: list[tuple]) -> list[tuple]:
    """The notifications without the answer: an idle session may have received them before its query."""
    return [message for message in messages if message[0] in ("A", "end")]


def shown(messages: list[tuple]) -> str:
    """Messages as text for a person."""
    return " | ".join(str(message)[:SHOWN_CHARACTERS] for message in messages) or "nothing"
