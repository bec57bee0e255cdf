"""What a run has besides senders and clients.

Strangers notify in ways that pg_herald does not carry, or not as others, which must disturb no other client. With --mixed there
are also settings that change, and clients with limits: a client may be notified that it has missed something, and a position may
be of no use. None of it may cost a notification, or send one twice.
"""

from typing import TYPE_CHECKING

from actors import BY_ITSELF, CANCELLED
from clients import CHANNELS, DATABASE, UNLOGGED, Client, Listener, Reader, Sender
from link import Failed, Link, Lost
from oracle import Wrong

if TYPE_CHECKING:
    from story import Story

STRANGER, CLERK = "stranger", "clerk"
ROLES = f"CREATE ROLE {STRANGER} LOGIN; CREATE ROLE {CLERK} LOGIN"
# By a role that is no superuser. Its channel is one of those that are logged, as the administrator has them: by a prefix.
TRIGGER = f"""
GRANT CREATE ON DATABASE {DATABASE} TO {CLERK};
GRANT SELECT, INSERT, UPDATE ON ledger, progress TO {CLERK};
SET ROLE {CLERK};
CREATE EXTENSION tcn SCHEMA pg_catalog;
CREATE SCHEMA {CLERK};
CREATE TABLE {CLERK}.watched (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
CREATE TRIGGER tcn AFTER INSERT ON {CLERK}.watched
	FOR EACH ROW EXECUTE FUNCTION triggered_change_notification('orders_watched');
"""
# pg_notify() where no plan can name another function instead.
UNSEEN = ("EXECUTE unseen(pg_notify('nobody', '') IS NULL)", "INSERT INTO unseen VALUES (1)")
PREPARE_UNSEEN = """
PREPARE unseen(boolean) AS SELECT 1;
CREATE TEMPORARY TABLE unseen (number integer CHECK (pg_notify('nobody', '') IS NOT NULL));
"""
NOT_SUPPORTED = "0A000"
HAS_TCN = "SELECT count(*) FROM pg_available_extensions WHERE name = 'tcn'"
PAUSE_S = 2           # between two changes of settings, at most; the primary restarts every few seconds
SHORT_S = 0.2         # the same for strangers
UNSEEN_S = 0.01
DISABLED, BY_C = "notified with herald.enabled off", "notified by a C function"
UNSEEN_REFUSED, UNSEEN_ALLOWED = "unseen calls refused", "unseen calls without the module"
SETTING, LIMITED = "changed settings", "reached a limit"
TEMP_FILES_FULL = "53400"
LIMITS = ("statement_timeout=2", "statement_timeout=20", "temp_file_limit=0 -c work_mem=64kB", "temp_file_limit=128 -c work_mem=64kB")


def join(story: "Story") -> list[str]:
    """Adds the strangers, before the servers' channels are logged; returns what must happen."""
    count = len(story.senders)
    story.chain.primary.psql(ROLES)
    story.senders.append(DisabledSender(story, count + 1))
    story.others.append(UnseenCaller(story))
    if story.chain.primary.psql(HAS_TCN) == "0":
        return [DISABLED, UNSEEN_REFUSED, UNSEEN_ALLOWED]
    story.chain.primary.psql(TRIGGER)
    story.senders.append(Trigger(story, count + 2))
    return [DISABLED, UNSEEN_REFUSED, UNSEEN_ALLOWED, BY_C]


def join_mixed(story: "Story") -> list[str]:
    """Adds what may disturb clients; returns what must happen."""
    listeners = sum(isinstance(client, Listener) for client in story.clients)
    readers = len(story.clients) - listeners
    story.clients += [LimitedListener(story, listeners), LimitedListener(story, listeners + 1), LimitedReader(story, readers)]
    story.others.append(Administrator(story))
    return [SETTING, LIMITED]


class DisabledSender(Sender):
    """Notifies with pg_herald switched off in its transaction, which has it logged all the same."""

    kind = "disabled sender"

    def __init__(self, story: "Story", number: int):
        super().__init__(story, number, loses_some=False)
        self.begin_block = "BEGIN; SET LOCAL herald.enabled = off"

    def act(self) -> None:
        """One transaction."""
        self.pause(self.random.random() * SHORT_S)
        self.commit(*self.few())
        self.stage.count(DISABLED)


class Trigger(Sender):
    """Has a C function notify, past pg_herald, beside its own notifications."""

    kind = "trigger"
    user = CLERK

    def __init__(self, story: "Story", number: int):
        super().__init__(story, number, loses_some=False)

    def act(self) -> None:
        """One transaction; the row comes anywhere before the end."""
        self.pause(self.random.random() * SHORT_S)
        statements, numbers = self.few()
        statements.insert(self.random.randrange(len(statements)), f"INSERT INTO {CLERK}.watched DEFAULT VALUES")
        self.commit(statements, numbers)
        self.stage.count(BY_C)


class UnseenCaller(Sender):
    """Has no privileges, and calls pg_notify() in ways that pg_herald must refuse, all the time."""

    kind = "unseen caller"
    user = STRANGER

    def __init__(self, story: "Story"):
        super().__init__(story, 0, loses_some=False)

    def begin(self) -> None:
        """Prepares."""
        super().begin()
        self.link.run(PREPARE_UNSEEN)

    def act(self) -> None:
        """Once."""
        self.pause(self.random.random() * UNSEEN_S)
        try:
            self.link.run(self.random.choice(UNSEEN))
        except Failed as failed:
            if failed.sqlstate != NOT_SUPPORTED or not self.has_module:
                raise
            self.stage.count(UNSEEN_REFUSED)
        else:
            if self.has_module:
                raise Wrong("called pg_notify(), which cannot be logged there")
            self.stage.count(UNSEEN_ALLOWED)


class Administrator(Sender):
    """Changes settings, now and then; all channels of clients stay logged."""

    kind = "administrator"

    def __init__(self, story: "Story"):
        super().__init__(story, 0, loses_some=False)

    def act(self) -> None:
        """One change, where the module is."""
        self.pause(self.random.random() * PAUSE_S)
        if not self.has_module:
            raise Lost(BY_ITSELF)
        channel, logged = self.random.choice(((UNLOGGED, "true"), (UNLOGGED, "false"), (UNLOGGED, "NULL"),
                                              (self.random.choice(CHANNELS[:-1]), self.random.choice(("true", "NULL")))))
        self.link.run(f"SELECT herald.set_channel('{channel}', logged => {logged})")
        self.stage.count(SETTING)


class Limited(Client):
    """Often has less time, or less room, than it needs."""

    def connect(self) -> Link:
        """To any server."""
        self.limit = None if self.asked_to_end.is_set() else self.random.choice((None, *LIMITS))
        return super().connect()

    def limits(self) -> str:
        """Settings of its sessions."""
        return self.limit or super().limits()

    def must_be_cancelled(self, failed: Failed) -> None:
        """It was cancelled, or reached its limit."""
        if self.limit and failed.sqlstate in (TEMP_FILES_FULL, CANCELLED):
            self.stage.count(LIMITED)
        if failed.sqlstate == TEMP_FILES_FULL:
            failed.sqlstate = CANCELLED
        super().must_be_cancelled(failed)


class LimitedListener(Limited, Listener):
    """Resumes by herald.listen()."""

    kind = "limited listener"


class LimitedReader(Limited, Reader):
    """Resumes by herald.read()."""

    kind = "limited reader"
