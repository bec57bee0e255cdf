"""Random statements and schedules, as strategies of Hypothesis. Simpler alternatives come first."""

from hypothesis import strategies as st

from schedule import SYNC, Schedule, Statement, Step, identifier, literal

SESSIONS = 4
PARTS = 8  # of a schedule
SESSION_OF_OTHER_DATABASE = 3

LONGEST_NAME = "n" * 63
CHANNELS = ("a", "b", "c", "Foo", "foo", "two words", "é", 'a "quote"', LONGEST_NAME)
CHANNELS_OFTEN = ("a",) * 5 + ("b",) * 3 + CHANNELS
CHANNELS_OF_DATA = CHANNELS_OFTEN * 2 + ("", "n" * 64, "é" * 32, None)  # the last four are refused
PAYLOADS = ("x", "y", "z", "", None, "it's", "é", "two\nlines", "back\\slash",
            "p" * 7999, "p" * 8000, "é" * 3999 + "p", "é" * 4000)
PAYLOADS_OFTEN = ("x", "y", "z", "") * 4 + PAYLOADS
ROLES = ("plain", "denied")
# Encodings that can represent all payloads: a listener with another one is disconnected, which has a test
# of its own. SQL_ASCII passes the server's bytes on.
ENCODINGS = ("UTF8", "LATIN1", "SQL_ASCII")

# With $1 and $2 for channel and payload. pg_notify() in every part of a plan that may contain it, and
# in functions, triggers, rules and defaults.
SENDING = (
    "SELECT pg_notify($1, $2)",
    "SELECT inlined($1, $2)",
    "SELECT * FROM inlined($1, $2)",
    "SELECT not_inlined($1, $2)",
    "SELECT twice($1, $2)",
    "SELECT performs($1, $2)",
    "SELECT assigns($1, $2)",
    "SELECT executes($1, $2)",
    "SELECT catches($1, $2)",
    "INSERT INTO immediate VALUES ($1, $2)",
    "INSERT INTO immediate VALUES ($1, $2), ($1, 'second'), ($1, $2)",
    "INSERT INTO before_row VALUES ($1, $2)",
    "INSERT INTO deferred VALUES ($1, $2)",
    "INSERT INTO deferred VALUES ($1, $2), ($1, 'second')",
    "INSERT INTO nothing VALUES (1) RETURNING pg_notify($1, $2)",
    "WITH sent AS (SELECT pg_notify($1, $2)) SELECT * FROM sent",
    "WITH row AS (INSERT INTO immediate VALUES ($1, $2) RETURNING channel, payload)"
    " SELECT pg_notify(channel, payload || 'again') FROM row",
    "SELECT pg_notify($1, $2), pg_notify($1, 'second'), pg_notify($1, $2)",
    "SELECT (SELECT pg_notify($1, $2))",
    "VALUES (pg_notify($1, $2)), (pg_notify($1, 'second'))",
    "SELECT pg_notify($1, $2) UNION ALL SELECT pg_notify($1, 'second')",
    "SELECT count(pg_notify($1, (n % 7)::text)) FROM generate_series(1, 20) n",
    "SELECT count(pg_notify($1, (n % 70)::text)) FROM generate_series(1, 200) n",
    "SELECT pg_notify($1, $2) FROM generate_series(1, 3) n ORDER BY n DESC",
    "SELECT n FROM generate_series(1, 2) n WHERE pg_notify($1, $2 || n)::text = ''",
    "SELECT CASE n WHEN 1 THEN pg_notify($1, $2) ELSE pg_notify($1, 'other') END"
    " FROM generate_series(1, 2) n",
    "SELECT max(n) OVER (ORDER BY n), pg_notify($1, n::text) FROM generate_series(1, 2) n",
    "SELECT * FROM generate_series(1, 2) n, LATERAL (SELECT pg_notify($1, $2 || n) OFFSET 0) sent",
)
# The same, without parameters, each with its channel.
SENDING_FIXED = (
    ("INSERT INTO ruled VALUES (1)", "b"),
    ("INSERT INTO defaulted (n) VALUES (1), (2)", "a"),
    ("EXECUTE kept('a', 'kept')", "a"),
    ("EXECUTE kept('b', '')", "b"),
)
# Expressions that the planner never sees notify natively: only in mixed schedules.
SENDING_NATIVE = ("EXECUTE taking(pg_notify($1, $2)::text)", "CALL takes(pg_notify($1, $2)::text)")

BLOCK = ("BEGIN",) * 6 + ("BEGIN ISOLATION LEVEL SERIALIZABLE", "START TRANSACTION READ ONLY")
END = ("COMMIT",) * 6 + ("ROLLBACK",) * 3 + ("END",)
CHAIN = ("COMMIT AND CHAIN", "ROLLBACK AND CHAIN")
SAVEPOINT = ("SAVEPOINT s",) * 3 + ("ROLLBACK TO s",) * 2 + ("RELEASE s",) + \
    ("SAVEPOINT t", "ROLLBACK TO t", "RELEASE t")
ERROR = ("SELECT 1 / 0", "SELEC", "SELECT no_such_column", "NOTIFY", "LISTEN a b", "NOTIFY a, 1",
         "SELECT 1 / (n - 2), pg_notify('a', 'lost' || n) FROM generate_series(1, 3) n")
OTHER = ("SELECT 1", "", "SET CONSTRAINTS ALL IMMEDIATE", "DEALLOCATE ALL",
         "SELECT * FROM pg_listening_channels() channel ORDER BY channel COLLATE \"C\"")


SETTINGS = tuple(f"SET client_encoding = {name}" for name in ENCODINGS) + \
    tuple(f"SET ROLE {name}" for name in ROLES) + \
    ("RESET ROLE", "SET LOCAL ROLE plain", "RESET client_encoding")

HOWS = ("simple",) * 12 + ("string",) * 6 + ("extended",) * 4 + ("prepared",) * 2 + ("pipeline",) * 4 + \
    ("nested",) * 3 + ("reconnect",)


def plain(sql: str, **known) -> Statement:
    """A statement without arguments."""
    return Statement(sql, **known)


def any_of(*sql: str, **known) -> st.SearchStrategy[Statement]:
    """Any of these statements without arguments."""
    return st.sampled_from([plain(one, **known) for one in sql])


# Created once: creating a strategy takes longer than drawing from it.
CHANNEL = st.sampled_from(CHANNELS_OFTEN)
CHANNEL_OF_DATA = st.sampled_from(CHANNELS_OF_DATA)
PAYLOAD = st.sampled_from(PAYLOADS_OFTEN)
YES_OR_NO = st.booleans()


@st.composite
def notify(draw) -> Statement:
    """NOTIFY."""
    channel, payload = draw(CHANNEL), draw(PAYLOAD)
    name = spelled(channel, draw(YES_OR_NO))
    sql = f"NOTIFY {name}" if payload is None else f"NOTIFY {name}, {literal(payload)}"
    return plain(sql, notifies=frozenset([channel]))


@st.composite
def listen(draw) -> Statement:
    """LISTEN and UNLISTEN."""
    channel = draw(CHANNEL)
    name = spelled(channel, draw(YES_OR_NO))
    how = draw(LISTEN_HOW)
    if how == "UNLISTEN *":
        return plain(how, changes=True)
    if how == "UNLISTEN":
        return plain(f"UNLISTEN {name}", changes=True)
    if how == "LISTEN":
        return plain(f"LISTEN {name}", listens=frozenset([channel]), changes=True)
    return Statement("SELECT listens($1)", (channel,), listens=frozenset([channel]), changes=True)


LISTEN_HOW = st.sampled_from(("LISTEN",) * 4 + ("UNLISTEN", "UNLISTEN *", "function"))


def spelled(channel: str, otherwise: bool) -> str:
    """A channel as an identifier: quoted, or folded, or truncated to 63 bytes with a NOTICE."""
    if otherwise and channel == "foo":
        return "FOO"
    if otherwise and channel == LONGEST_NAME:
        return channel + "x"
    return identifier(channel)


def call_to_send(templates: tuple[str, ...]) -> st.SearchStrategy[Statement]:
    """pg_notify(), called by any of the templates."""
    def one(template: str, channel: str | None, payload: str | None) -> Statement:
        arguments = (channel, payload) if "$2" in template else (channel,)
        return Statement(template, arguments, notifies=frozenset([channel] if channel else []))

    return st.builds(one, st.sampled_from(templates), CHANNEL_OF_DATA, PAYLOAD)


@st.composite
def do(draw) -> Statement:
    """DO, with a subtransaction or without."""
    channel, payload = draw(CHANNEL), draw(PAYLOAD)
    body = f"PERFORM pg_notify({literal(channel)}, {literal(payload)});"
    if draw(YES_OR_NO):
        body = f"BEGIN {body} EXCEPTION WHEN invalid_parameter_value THEN NOTIFY a, 'refused'; END;"
    return plain(f"DO $$ BEGIN {body} END $$", notifies=frozenset([channel, "a"]))


@st.composite
def call(draw) -> Statement:
    """CALL of a procedure that ends transactions."""
    channel, payload = draw(CHANNEL), draw(PAYLOAD)
    procedure = "rolls_back" if draw(YES_OR_NO) else "commits"
    return plain(f"CALL {procedure}({literal(channel)}, {literal(payload)})",
                 notifies=frozenset([channel]), ends=True)


def statements(session: int) -> st.SearchStrategy[Statement]:
    """Any statement."""
    name = f"'of session {session}'"
    kinds = {
        "notify": (10, notify()),
        "call to send": (14, call_to_send(SENDING)),
        "fixed": (3, st.sampled_from([plain(sql, notifies=frozenset([channel]))
                                      for sql, channel in SENDING_FIXED])),
        "do": (2, do()),
        "call": (2, call()),
        "listen": (10, listen()),
        "block": (10, any_of(*BLOCK)),
        "end": (7, any_of(*END, ends=True)),
        "savepoint": (9, any_of(*SAVEPOINT, in_block=True)),
        "chain": (1, any_of(*CHAIN, ends=True, in_block=True)),
        "error": (2, any_of(*ERROR)),
        "other": (3, any_of(*OTHER)),
        "setting": (3, any_of(*SETTINGS)),
        "discard": (1, any_of("DISCARD ALL", ends=True, changes=True)),
        "prepare": (1, any_of(f"PREPARE TRANSACTION {name}", ends=True, in_block=True)),
        "prepared": (1, any_of(f"COMMIT PREPARED {name}", f"ROLLBACK PREPARED {name}")),
    }
    weighted = [name for name, (weight, _) in kinds.items() for _ in range(weight)]
    return st.sampled_from(weighted).flatmap(lambda name: kinds[name][1])


@st.composite
def nested(draw) -> tuple[Statement, ...]:
    """A transaction with a savepoint, and no statement that would end it early."""
    return (plain("BEGIN"), *draw(HARMLESS), plain("SAVEPOINT s"), *draw(HARMLESS),
            plain(draw(SAVEPOINT_END)), *draw(HARMLESS), plain("COMMIT", ends=True))


@st.composite
def steps(draw, mixed: bool) -> Step:
    """One step."""
    session = draw(SESSION)
    how = draw(HOW[mixed])
    if how == "reconnect":
        return Step(session, how, ())
    if how == "switch":
        return Step(session, "herald", (draw(SWITCH),))
    if how == "native":
        return Step(session, "simple", (draw(NATIVE),))
    if how == "string":
        return Step(session, "simple", tuple(draw(STRING[session])))
    if how == "nested":
        return Step(session, "simple", draw(NESTED))
    if how == "pipeline":
        return Step(session, how, tuple(draw(PIPELINE[session])))
    return Step(session, how, (draw(ANY[session]),))


@st.composite
def schedules(draw) -> Schedule:
    """A whole schedule. It consists of several lists, because Hypothesis generates short ones."""
    mixed = draw(MIXED)
    parts = [draw(STEPS[mixed]) for _ in range(PARTS)]
    return Schedule(tuple(step for part in parts for step in part), mixed)


@st.composite
def encounters(draw) -> tuple[Step, ...]:
    """A session listens; another one notifies it, and is answered; then the first runs a query, or UNLISTEN."""
    session = draw(st.integers(0, SESSION_OF_OTHER_DATABASE - 1))
    other = (session + draw(st.integers(1, SESSION_OF_OTHER_DATABASE - 1))) % SESSION_OF_OTHER_DATABASE
    channel = draw(CHANNEL)
    quoted, concerned = identifier(channel), frozenset([channel])
    listen_first = Step(session, "simple", (plain(f"LISTEN {quoted}", listens=concerned, changes=True),))
    first = Step(other, draw(HOW_OF_ONE), (draw(st.sampled_from((
        plain(f"NOTIFY {quoted}, {literal(draw(PAYLOAD_SHORT))}", notifies=concerned),
        Statement("SELECT pg_notify($1, $2)", (channel, draw(PAYLOAD_SHORT)), notifies=concerned)))),))
    then = draw(st.sampled_from((
        plain(f"UNLISTEN {quoted}", changes=True), plain("UNLISTEN *", changes=True),
        plain("DISCARD ALL", ends=True, changes=True), plain("SELECT 1"), plain(""))))
    how = draw(HOW_OF_ONE)
    if draw(YES_OR_NO) and then.sql not in ("DISCARD ALL", ""):
        how, then = draw(st.sampled_from((("simple", (then, plain("SELECT 1"))), ("simple", (plain("SELECT 1"), then)),
                                          ("pipeline", (then, plain("SELECT 1"))))))
        return listen_first, Step(session, how, then, first)
    return listen_first, Step(session, how, (then,), first)


@st.composite
def schedules_of_encounters(draw) -> Schedule:
    """Many encounters, with random steps in between."""
    parts = [draw(ENCOUNTERS) for _ in range(PARTS)]
    return Schedule(tuple(step for part in parts for steps in part for step in steps))


HARMLESS = st.lists(listen() | notify() | call_to_send(SENDING[:1]), max_size=3)
SAVEPOINT_END = st.sampled_from(("ROLLBACK TO s", "RELEASE s"))
NESTED = nested()
SESSION = st.sampled_from((0, 1, 2, 0, 1, 2, 0, 1, SESSION_OF_OTHER_DATABASE))
ANY = [statements(session) for session in range(SESSIONS)]
STRING = [st.lists(one, min_size=1, max_size=8) for one in ANY]
PIPELINE = [st.lists(one | st.just(SYNC), min_size=1, max_size=8) for one in ANY]
SWITCH = any_of("SET herald.enabled = off", "SET herald.enabled = on")
NATIVE = call_to_send(SENDING_NATIVE)
MIXED = st.sampled_from((False, False, False, True))
HOW = {False: HOWS, True: HOWS + ("switch",) * 4 + ("native",) * 2}
HOW = {mixed: st.sampled_from(hows) for mixed, hows in HOW.items()}
STEPS_ONE = steps(False)
STEPS = {mixed: st.lists(steps(mixed), max_size=20) for mixed in (False, True)}
HOW_OF_ONE = st.sampled_from(("simple", "simple", "extended", "prepared"))
PAYLOAD_SHORT = st.sampled_from(("x", "y", "z"))
ENCOUNTERS = st.lists(encounters() | encounters() | encounters() | st.tuples(STEPS_ONE), max_size=8)
