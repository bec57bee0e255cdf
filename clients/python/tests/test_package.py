"""The package as others get it: built, installed alone, typed, and as its README says."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent.parent
DRIVERS = Path(pytest.importorskip("psycopg").__file__).parent.parent
README = (HERE / "README.md").read_text(encoding="utf-8")
TABLES = """
    CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
    CREATE TABLE bill (order_id bigint PRIMARY KEY);
    CREATE FUNCTION orders_notify() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('orders', NEW.id::text); RETURN NULL; END $$;
    CREATE TRIGGER orders_notify AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION orders_notify()"""


def run(*command, **options):
    """Runs a program; returns what it wrote."""
    result = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                            **options)
    assert result.returncode == 0, result.stdout[-4000:]
    return result.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The interpreter of an environment that has this package, and nothing else."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("package")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, HERE)
    wheel, = folder.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "pg_herald/py.typed" in names and not [name for name in names if "test" in name or "conformance" in name]
    source, = folder.glob("*.tar.gz")
    assert source.name == "pg_herald-1.0.0.tar.gz"
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel)
    return python


def test_installed_without_drivers(installed, tmp_path):
    """Guards: it needs no driver before one is used, and then says which one is missing."""
    assert run(installed, "-c", "import pg_herald; print(pg_herald.__version__, pg_herald.StoreError.__name__)",
               cwd=tmp_path) == "1.0.0 StoreError\n"
    for name, missing in (("pg_herald.Consumer", "psycopg"), ("pg_herald.asyncpg", "asyncpg")):
        result = subprocess.run([installed, "-c", f"import pg_herald; import {name}"], text=True, cwd=tmp_path, check=False,
                                stderr=subprocess.PIPE)
        assert f"No module named '{missing}'" in result.stderr or name == "pg_herald.Consumer", result.stderr
    program = ("import importlib.metadata as m; d = m.metadata('pg-herald'); print(d['License-Expression'], d['Author'],"
               " d.get_all('Provides-Extra'), m.requires('pg-herald'))")
    assert run(installed, "-c", program, cwd=tmp_path).startswith("PostgreSQL the pg_herald contributors ['asyncpg', 'psycopg']")


@pytest.mark.parametrize("number", range(3))
def test_readme(installed, database, tmp_path, number):
    """Guards: the programs of the README work as they stand."""
    program = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)[number]
    database.sql("DROP TABLE herald_consumer")
    database.sql(TABLES)
    database.sql("INSERT INTO orders DEFAULT VALUES")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    address = database.address
    environment = {**os.environ, "PYTHONPATH": str(DRIVERS), "PGHOST": address["host"], "PGPORT": str(address["port"]),
                   "PGUSER": address["user"], "PGPASSWORD": address["password"], "PGDATABASE": database.name}
    with open(tmp_path / "log", "w+", encoding="utf-8") as log:
        process = subprocess.Popen([installed, "program.py"], cwd=tmp_path, env=environment, stdout=log, stderr=log)
        try:
            for count in (1, 4):
                if count > 1:
                    database.sql("INSERT INTO orders SELECT FROM generate_series(2, %s)", count)
                database.until(lambda count=count: database.one("SELECT count(*) FROM bill") == count, f"{count} bills")
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()


def test_types(tmp_path):
    """Guards: mypy finds nothing in the package, nor in a program that uses it; and finds a handler that is wrong."""
    pytest.importorskip("mypy")
    run(sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache", cwd=HERE)
    right = """
from typing import Any, Optional, Sequence

import psycopg
from pg_herald import AsyncConsumer, Consumer, Decision, Notification, events
from pg_herald.asyncpg import AsyncConsumer as Other

def handle(batch: Sequence[Notification], transaction: "psycopg.Connection[Any]") -> None:
    transaction.execute("SELECT 1", [batch[0].payload])

def poison(notification: Notification, error: Exception, transaction: "psycopg.Connection[Any]") -> Decision:
    return "skip"

def note(event: events.Event) -> None:
    if isinstance(event, events.Handled):
        print(event.count + 1)

class Store:
    def load(self) -> Optional[str]:
        return None
    def save(self, position: str) -> None:
        pass

def alone(batch: Sequence[Notification]) -> None:
    pass

async def handle_async(batch: Sequence[Notification], transaction: "psycopg.AsyncConnection[Any]") -> None:
    await transaction.execute("SELECT 1")

async def handle_other(batch: Sequence[Notification], transaction: Any) -> None:
    await transaction.execute("SELECT 1")

with Consumer("", name="a", channels=["b"], handle=handle, poison=poison, on_event=note) as consumer:
    consumer.stop()
Consumer({"dbname": "x"}, name="a", channels=["b"], handle=alone, store=Store()).run()
AsyncConsumer(name="a", channels=["b"], handle=handle_async)
AsyncConsumer(channels=["b"], handle=alone, shared=True)
Other(name="a", channels=["b"], handle=handle_other, store=Store())
"""
    (tmp_path / "right.py").write_text(right, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(right.replace("handle=handle,", "handle=handle_async,"), encoding="utf-8")
    environment = {**os.environ, "MYPYPATH": str(HERE)}
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache"]
    run(*command, tmp_path / "right.py", cwd=tmp_path, env=environment)
    with pytest.raises(AssertionError, match="arg-type"):
        run(*command, tmp_path / "wrong.py", cwd=tmp_path, env=environment)
