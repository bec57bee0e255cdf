"""What a run with --mixed has besides: notifications that pg_herald does not send, settings that change, clients with limits.

None of it may cost a notification, or send one twice; a client may be notified that it has missed something, and a position
may be of no use.
"""

from typing import TYPE_CHECKING

from actors import CANCELLED
from clients import CHANNELS, UNLOGGED, Client, Listener, Reader, Sender
from link import Failed, Link

if TYPE_CHECKING:
    from story import Story

TRIGGER = """
CREATE EXTENSION tcn;
CREATE TABLE watched (id integer PRIMARY KEY);
CREATE TRIGGER tcn AFTER INSERT OR DELETE ON watched FOR EACH ROW EXECUTE FUNCTION triggered_change_notification('tcn');
SELECT herald.set_channel('tcn', logged => true);
"""
HAS_TCN = "SELECT count(*) FROM pg_available_extensions WHERE name = 'tcn'"
PAUSE_S = 8           # between two actions of one of them, at most
NATIVE, UNSEEN, SETTING, LIMITED = "native notifications", "notifications by a C function", "changed settings", "reached a limit"
TEMP_FILES_FULL = "53400"
LIMITS = ("statement_timeout=2", "statement_timeout=20", "temp_file_limit=0 -c work_mem=64kB", "temp_file_limit=128 -c work_mem=64kB")


def join(story: "Story") -> list[str]:
    """Adds them to a run whose servers have started; returns what must happen in it."""
    senders, listeners = len(story.senders), sum(isinstance(client, Listener) for client in story.clients)
    readers = len(story.clients) - listeners
    story.senders.append(NativeSender(story, senders + 1))
    story.clients += [LimitedListener(story, listeners), LimitedListener(story, listeners + 1), LimitedReader(story, readers)]
    story.others.append(Administrator(story))
    if story.chain.primary.psql(HAS_TCN) == "0":
        return [NATIVE, SETTING, LIMITED]
    story.chain.primary.psql(TRIGGER)
    story.others.append(Trigger(story))
    return [NATIVE, SETTING, LIMITED, UNSEEN]


class NativeSender(Sender):
    """Notifies through the server's own queue."""

    kind = "native sender"

    def __init__(self, story: "Story", number: int):
        super().__init__(story, number, loses_some=False)
        self.begin_block = "BEGIN; SET LOCAL herald.enabled = off"

    def act(self) -> None:
        """One transaction."""
        self.pause(self.random.random() * PAUSE_S)
        self.commit(*self.few())
        self.stage.count(NATIVE)


class Outsider(Sender):
    """Acts on the present primary, now and then."""

    done = ""

    def __init__(self, story: "Story"):
        super().__init__(story, 0, loses_some=False)

    def act(self) -> None:
        """Once."""
        self.pause(self.random.random() * PAUSE_S)
        self.link.run(self.statement())
        self.stage.count(self.done)

    def statement(self) -> str:
        """What it does next."""
        raise NotImplementedError


class Trigger(Outsider):
    """Notifies by a C function, which pg_herald does not see."""

    kind = "trigger"
    done = UNSEEN

    def statement(self) -> str:
        """A row comes or goes."""
        return "WITH gone AS (DELETE FROM watched RETURNING id) INSERT INTO watched SELECT coalesce(max(id), 0) + 1 FROM gone"


class Administrator(Outsider):
    """Changes settings; all channels of clients stay logged."""

    kind = "administrator"
    done = SETTING

    def statement(self) -> str:
        """One change."""
        channel, logged = self.random.choice(((UNLOGGED, "true"), (UNLOGGED, "false"), (UNLOGGED, "NULL"),
                                              (self.random.choice(CHANNELS[:-1]), self.random.choice(("true", "NULL")))))
        return f"SELECT herald.set_channel('{channel}', logged => {logged})"


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
