"""The parts of a schedule, and the script with which a person can read and replay it."""

from dataclasses import dataclass

@dataclass(frozen=True)
class Statement:
    """One SQL statement, and what the player must know about it.

    sql         with $1, $2, ... for the arguments
    listens     channels on which it may start to listen
    notifies    channels that it may notify
    ends        it may end a transaction although it runs in a block
    changes     it may change the channels on which the session listens
    in_block    as the only statement of a step, it makes sense in a transaction block only
    """

    sql: str
    arguments: tuple[str | None, ...] = ()
    listens: frozenset[str] = frozenset()
    notifies: frozenset[str] = frozenset()
    ends: bool = False
    changes: bool = False
    in_block: bool = False

    def text(self) -> str:
        """The statement with its arguments inserted."""
        text = self.sql
        for number, argument in reversed(list(enumerate(self.arguments, 1))):
            text = text.replace(f"${number}", literal(argument))
        return text


SYNC = Statement("-- Sync")

# How a script describes the way of sending a step.
NOTES = {
    "simple": "",
    "extended": ", extended protocol",
    "prepared": ", extended protocol, the statement is kept",
    "pipeline": ", pipeline; up to each Sync, one transaction",
    "herald": ", only with pg_herald",
    "reconnect": ": end it, and open another",
}


@dataclass(frozen=True)
class Step:
    """The statements that one session is sent at once.

    how is "simple" (all statements in one query string), "extended" (one, by the extended
    protocol), "prepared" (one, by a statement of that protocol which is kept), "pipeline" (each by
    the extended protocol; with a Sync for each SYNC, and at the end), "herald" (a setting that only
    that server has), or "reconnect" (the connection is closed, and another takes its place).

    first       a step of another session that notifies, and is answered immediately before this step
    """

    session: int
    how: str
    statements: tuple[Statement, ...]
    first: "Step | None" = None


@dataclass(frozen=True)
class Schedule:
    """Steps, one after the other.

    mixed       on the same server some notifications are sent through pg_herald and some natively:
                the order between the two kinds is not defined, and not compared.
    """

    steps: tuple[Step, ...]
    mixed: bool = False


def literal(text: str | None) -> str:
    """A string constant."""
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A quoted name."""
    return '"' + name.replace('"', '""') + '"'


def script(steps: list[Step], first_line: str = "") -> str:
    """The steps for psql: each is to be pasted into the session that it names."""
    lines = [first_line] if first_line else []
    for number, step in enumerate(steps, 1):
        lines.append(f"-- step {number}, connection {step.session}{NOTES[step.how]}"
                     f"{', right after the answer to the step before' if step.first else ''}")
        lines += _psql(step)
    return "\n".join(lines) + "\n"


def _psql(step: Step) -> list[str]:
    """The step's lines for psql, which sends statements with `\\;` between them as one query string, as a
    segment of a pipeline is."""
    lines, string = [], []
    for statement in (*step.statements, SYNC):
        if statement is not SYNC:
            string.append(statement.text())
            continue
        if string:
            lines.append(" \\; ".join(string) + ";")
        if statement is SYNC and step.how == "pipeline":
            lines.append("-- Sync")
        string = []
    return lines
