"""Keys of session caches: one value makes one key, whatever a session's settings and the names of objects."""

import pytest

from servers import SETTINGS, need_xml, started
from support import one, outcome

REFUSED = "0A000: cannot make a cache key from a value of type "

# Types whose values name an object: the schema, the object's name, the rest of its text, and its kind in ALTER (if it
# can be renamed).
OBJECTS = {
    "regclass": ("keys.", "thing", "", "TABLE"),
    "regtype": ("keys.", "feeling", "", "TYPE"),
    "regproc": ("keys.", "twice", "", "FUNCTION"),
    "regprocedure": ("keys.", "twice", "(integer)", "FUNCTION"),
    "regoper": ("keys.", "<+>", "", None),
    "regoperator": ("keys.", "<+>", "(integer,integer)", None),
    "regconfig": ("keys.", "config", "", "TEXT SEARCH CONFIGURATION"),
    "regdictionary": ("keys.", "words", "", "TEXT SEARCH DICTIONARY"),
    "regcollation": ("keys.", "in_order", "", "COLLATION"),
    "regnamespace": ("", "keys_other", "", "SCHEMA"),
    "regrole": ("", "keys_role", "", "ROLE"),
}

# Types of text: char(5) ignores blanks at the end, the others count them.
BLANKS = ["char(5)", "varchar", "text", "name"]

SETUP = """
    CREATE SCHEMA keys; CREATE SCHEMA keys_other; CREATE ROLE keys_role;
    CREATE TABLE keys.thing (id integer);
    CREATE TYPE keys.feeling AS ENUM ('sad', 'happy');
    CREATE FUNCTION keys.twice(integer) RETURNS integer LANGUAGE sql RETURN 2 * $1;
    CREATE OPERATOR keys.<+> (LEFTARG = integer, RIGHTARG = integer, FUNCTION = int4pl);
    CREATE TEXT SEARCH CONFIGURATION keys.config (COPY = simple);
    CREATE TEXT SEARCH DICTIONARY keys.words (TEMPLATE = simple);
    CREATE COLLATION keys.in_order FROM "C";
    CREATE DOMAIN keys.table_name AS regclass;
    CREATE DOMAIN keys.tables AS regclass[];
    CREATE DOMAIN keys.days AS date[];
    CREATE TYPE keys.plain AS (a integer, b timestamptz[]);
    CREATE TYPE keys.named AS (a integer, b keys.plain, c regclass);
    CREATE TYPE keys.prices AS RANGE (SUBTYPE = money, MULTIRANGE_TYPE_NAME = keys.prices_multirange);
    CREATE TYPE keys.moments AS RANGE (SUBTYPE = timestamptz);
    -- Two types of an extension's, by functions of the server's.
    CREATE TYPE keys.promised;
    CREATE FUNCTION keys.promised_in(cstring) RETURNS keys.promised LANGUAGE internal IMMUTABLE STRICT AS 'textin';
    CREATE FUNCTION keys.promised_out(keys.promised) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
    CREATE TYPE keys.promised (INPUT = keys.promised_in, OUTPUT = keys.promised_out, LIKE = text);
    CREATE TYPE keys.unknown;
    CREATE FUNCTION keys.unknown_in(cstring) RETURNS keys.unknown LANGUAGE internal STABLE STRICT AS 'textin';
    CREATE FUNCTION keys.unknown_out(keys.unknown) RETURNS cstring LANGUAGE internal STABLE STRICT AS 'textout';
    CREATE TYPE keys.unknown (INPUT = keys.unknown_in, OUTPUT = keys.unknown_out, LIKE = text)"""


@pytest.fixture(scope="module")
def keys():
    """A server with objects of every kind that a type of the server can name."""
    for cluster in started(preload=True, caches=True, settings=SETTINGS):
        cluster.psql(SETUP)
        yield cluster


@pytest.fixture
def session(keys, connect):
    """A session that looks up."""
    return connect(keys)


@pytest.fixture
def other(keys, connect):
    """A session that makes changes."""
    return connect(keys)


@pytest.mark.parametrize("kind", OBJECTS)
def test_key_of_an_object(session, other, kind):
    """Guards: a value that names an object makes the same key with any search_path, and after the object was renamed;
    so a change by another session is found."""
    where, name, more, called = OBJECTS[kind]
    other.execute(f"""
        DROP TABLE IF EXISTS rule;
        CREATE TABLE rule (object {kind}, v integer);
        INSERT INTO rule VALUES ('{where}{name}{more}', 0);
        CREATE TRIGGER rule AFTER INSERT OR UPDATE OR DELETE ON rule
            FOR EACH ROW EXECUTE FUNCTION herald.invalidate_cache('rule', 'object')""")
    look = ("SELECT herald.cache_through('rule', 'SELECT v FROM public.rule WHERE object = $1::oid', object)"
            " FROM public.rule")
    session.execute("SET search_path = public")
    assert one(session, look) == "0"
    other.execute("SET search_path = keys, public; UPDATE rule SET v = 1")
    assert one(session, look) == "1"
    assert one(session, "SELECT herald.cache_key(object) = object::oid::text FROM rule")
    if called:
        other.execute(f"ALTER {called} {where}{name} RENAME TO renamed")
        other.execute("UPDATE rule SET v = 2")
        assert one(session, look) == "2"
        other.execute(f"ALTER {called} {where}renamed RENAME TO {name}")


def test_key_of_what_is_a_number(session):
    """Guards: the key of an amount does not depend on lc_monetary; a domain is treated like its base type."""
    assert one(session, "SELECT herald.cache_key('-12.34'::money, 1)") == "-1234,1"
    assert one(session, "SELECT herald.cache_key('pg_class'::keys.table_name, '0'::regtype)") == "1259,0"


@pytest.mark.parametrize("argument", BLANKS)
@pytest.mark.parametrize("column", BLANKS)
def test_blanks(session, other, column, argument):
    """Guards: with any two of the text types, a change of the row is seen wherever the query finds the row, however
    many blanks there are at the end."""
    other.execute(f"DROP TABLE IF EXISTS keys.country; CREATE TABLE keys.country (code {column}, vat integer)")
    other.execute("INSERT INTO keys.country VALUES ('DE ', 0)")
    session.execute("SELECT herald.cache_watch('vat', 'keys.country', 'code')")
    for vat in range(1, 3):
        other.execute(f"UPDATE keys.country SET vat = {vat}")
        for code in ("DE", "DE ", "DE   "):
            query = f"SELECT vat FROM keys.country WHERE code = '{code}'::{argument}"
            cached = one(session, "SELECT herald.cache_through('vat', 'SELECT vat FROM keys.country WHERE code = $1',"
                                  f" '{code}'::{argument})")
            found = session.execute(query).fetchone()
            assert cached == (str(found[0]) if found else None), (vat, code)
    other.execute("DROP TABLE keys.country")


def test_keys_stay(session):
    """Guards: keys that users write by hand do not change: of numbers, texts, times, arrays, ranges, rows, enums, and
    extension types whose output function is immutable."""
    session.execute("SET DateStyle = 'German'; SET TimeZone = 'Asia/Tokyo'; SET IntervalStyle = 'iso_8601';"
                    " SET extra_float_digits = -3; SET bytea_output = 'escape'")
    for value, key in {
            "7": "7", "'text'": "text", "1.50": "1.5", "true": "t", "'a'::char(3)": "a",
            "100": "100", "100.0": "100", "'-0.00'::numeric": "0", "'NaN'::numeric": "NaN", "'-0'::float8": "0",
            "'é '::char(4)": "é", "' '::char(2)": "",
            "'\\x00ff'::bytea": "\\x00ff", "0.1::float4": "0.1", "'(0.1,2)'::point": "(0.1,2)",
            "'2001-02-03'::date": "2001-02-03", "'1 day 02:00'::interval": "1 day 02:00:00",
            "'2001-02-03 04:05:06+00'::timestamptz": "2001-02-03 04:05:06+00",
            "'{2001-02-03}'::keys.days": "{2001-02-03}",
            "'[2001-02-03,2001-02-05)'::daterange": "[2001-02-03,2001-02-05)",
            "'{[1,3)}'::int4multirange": "{[1,3)}",
            "'[2001-02-03 04:05:06+00,)'::keys.moments": '["2001-02-03 04:05:06+00",)',
            "'happy'::keys.feeling": "happy", "'{happy,sad}'::keys.feeling[]": "{happy,sad}",
            "ROW(1, 'a'::text, '2001-02-03'::date)": "(1,a,2001-02-03)",
            "'(1,{})'::keys.plain": "(1,{})",
            "'{\"a\": 1}'::jsonb": '{"a": 1}', "'10:20:'::pg_snapshot": "10:20:",
            "'abc'::keys.promised": "abc", "'{abc}'::keys.promised[]": "{abc}",
            "'b4ff1d2c-0000-0000-0000-000000000000'::uuid": "b4ff1d2c-0000-0000-0000-000000000000"}.items():
        assert one(session, f"SELECT herald.cache_key({value})") == key, value
    assert one(session, "SELECT herald.cache_key(NULL::aclitem, 1)") == "\\N,1"


def test_key_of_xml_stays(session):
    """Guards: the same for a type that some servers lack."""
    need_xml()
    assert one(session, "SELECT herald.cache_key('<a/>'::xml)") == "<a/>"


@pytest.mark.parametrize("value, named", [
    ("'{pg_class}'::regclass[]", "regclass[]"),
    ("'{pg_class}'::keys.tables", "keys.tables"),
    ("'{12}'::money[]", "money[]"),
    ("'[1,2)'::keys.prices", "keys.prices"),
    ("'{[1,2)}'::keys.prices_multirange", "keys.prices_multirange"),
    ("ROW('pg_class'::regclass)", "record"),
    ("ROW(ROW(1))", "record"),
    ("ARRAY[ROW(1)]", "record[]"),
    ("'(1,,)'::keys.named", "keys.named"),
    ("'=r/postgres'::aclitem", "aclitem"),
    ("'abc'::keys.unknown", "keys.unknown"),
])
def test_key_that_would_not_be_one(session, other, value, named):
    """Guards: a value that could have several texts is refused, by the function and by the trigger, instead of becoming
    stale one day; a null makes no key."""
    assert outcome(session, f"SELECT herald.cache_key({value})") == REFUSED + named
    if "ROW" not in value:
        other.execute(f"""
            DROP TABLE IF EXISTS refused;
            CREATE TABLE refused AS SELECT {value} AS v;
            CREATE TRIGGER refused AFTER UPDATE ON refused
                FOR EACH ROW EXECUTE FUNCTION herald.invalidate_cache('refused', 'v')""")
        assert outcome(other, "UPDATE refused SET v = v") == REFUSED + named


def test_every_type_of_the_server(session):
    """Guards: no type of the server, in this version or a later one, makes a key if its text may differ: such types are
    known one by one."""
    refused = {name for name, in session.execute(
        "SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace"
        " AND typtype <> 'p' AND typcategory <> 'A' AND typarray <> 0 AND typrelid = 0")
        if str(outcome(session, f'SELECT herald.cache_key(\'{{}}\'::"{name}"[])')).startswith(REFUSED)}
    assert refused - {"regdatabase"} == {*OBJECTS, "money", "aclitem"}
    for name in refused - {"money", "aclitem"}:
        assert one(session, f"SELECT herald.cache_key('0'::{name})") == "0"
