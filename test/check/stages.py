"""The stages of ./check: what each runs, in which lane, and its time budget.

Three lanes. PREPARE runs first, one stage after another. Then COMPUTE, which uses the CPU time that is left (it runs at
idle priority), in parallel with SERVERS, whose tests mostly wait. MAJORS runs at the end of the lane SERVERS: the other
major versions, two at a time.
"""

from dataclasses import dataclass

import analysed

PREPARE, COMPUTE, SERVERS, MAJORS = "prepare", "compute", "servers", "majors"

# Where commits wait for the disk, as in production: a stock server without that wait is another one.
DISK = "/var/tmp"
PYTEST = ".venv/bin/python -m pytest -v -rfEs --durations=40 --durations-min=1"
# Files of tests, each with its own servers, in parallel.
PARALLEL = "-n {workers} --dist loadfile"
# The same for tests that wait for most of their time.
WAITING = "-n 5 --dist loadfile"
# On the build with stop points: it stops the server if a wait begins, or a message is sent, under a lock.
CHECKED = "PG_CONFIG=$(python3 -m harness.prefix --stop-points) || exit; export PG_CONFIG; "
# All of test/py that has no stage of its own.
REST = "test/py --ignore=test/py/test_bench.py --ignore=test/py/faults --ignore=test/py/tools"
UNIT = "make -C test/unit check CC=gcc && make -C test/unit check CC=clang BUILD=../results/unit_clang"
# The log is that of a test that fails, as it must.
FALSIFIED = ("! test/soak/run --seconds 6 --falsify {0} >test/results/soak_falsified.log 2>&1"
             " && grep -qE '^Failure: {0} .* Wrong: (heard .* after|has not heard) ' test/results/soak_falsified.log"
             " && echo test falsified_{0} ... ok")
FAILOVER_FALSIFIED = ("! test/failover/run --seconds 1 --falsify {0} >test/results/failover_falsified.log 2>&1"
                      " && grep -q ' {1}, 0 not in the table, 0 out of order' test/results/failover_falsified.log"
                      " && echo test falsified_{0} ... ok")
MISSING, DOUBLED = FAILOVER_FALSIFIED.format("missing", "1 missing, 0 doubled"), FAILOVER_FALSIFIED.format("doubled", "0 missing, 1 doubled")
IGNORED = FAILOVER_FALSIFIED.format("ignored", "[1-9][0-9]* missing, 0 doubled")
PATRONI_FALSIFIED = ("! test/patroni/run --falsify {0} >test/results/patroni_falsified.log 2>&1"
                     " && grep -q '{1}' test/results/patroni_falsified.log && echo test falsified_{0} ... ok")
# A compiler's analysis of a file depends on nothing but the file and what it includes.
ANALYSED = "export CHECK_ANALYSED=$(test/check/analysed.py {0}); "
ANALYSIS = (*analysed.ITSELF, "src/", "sql/", "harness/", "test/run_sql.py", "test/regress/", "test/isolation/",
            "test/check/majors.py")
CLIENTS = ("clients/", "test/clients/", "test/programs/", "test/failover/nodes.py", "test/examples/proxy.py", "harness/", "sql/",
           "src/notify/")
# Where majors between the oldest and the newest may differ from both.
VERSIONS = ("src/base/compat.h", "src/base/client.h", "src/notify/relay/", "src/notify/sender/retarget.c", "src/notify/wal/",
            "src/workers/relay_worker.c", "test/check/postgresql-16.txt", "test/py/semantics/test_plan_nodes.py")
TOOLS = ("check", "demo", "Makefile", "cache.mk", "common.mk", "harness/", "scripts/", "bench/", "test/check/", "test/py/tools/",
         "test/run_sql.py", "test/given_server", "test/figures_age.py", "test/indent", "sql/", "docs/resume/", "examples/",
         "test/examples/", "clients/python/")


@dataclass(frozen=True)
class Stage:
    """One stage.

    name        as on the command line
    what        what it does, for --help
    lane        PREPARE, COMPUTE, SERVERS or MAJORS
    budget_s    the seconds that it should take at most, in its lane; the table marks a stage that takes longer
    command     for bash, in the top folder of the tree
    at_length   the command for --everything; "" for the same
    guards      what it tests: without --everything it is left out if none of these files has changed since the commit
                at which --everything last passed; () if it always runs
    unchanged   the command to run in that case; "" to leave it out
    left_out    why only that is run; "" for the whole stage
    only_at_length  runs only with --everything
    """

    name: str
    what: str
    lane: str
    budget_s: int
    command: str
    at_length: str = ""
    guards: tuple[str, ...] = ()
    unchanged: str = ""
    left_out: str = ""
    only_at_length: bool = False

    @property
    def uses_pytest(self) -> bool:
        """Whether its log is written by pytest."""
        return self.command.startswith(PYTEST) or f"; {PYTEST}" in self.command


STAGES = (
    Stage("packages", "Debian's packages that are missing (scripts/install-deps)", PREPARE, 30,
          "scripts/install-deps check"),
    Stage("python", "the packages of test/requirements.txt, into .venv", PREPARE, 20, "scripts/python-packages"),
    Stage("install", "pg_herald, also with stop points, into .installation; the benchmark's clients", PREPARE, 30,
          "python3 -m harness.prefix --stop-points && make -s -C bench"),

    Stage("systems", "the Debian systems of the other major versions (scripts/matrix-root)", COMPUTE, 300,
          "python3 test/check/majors.py --make"),
    Stage("lint", "rules that no compiler checks (test/lint)", COMPUTE, 20, "python3 test/lint"),
    Stage("build", "with gcc and with clang, no warnings (test/build)", COMPUTE, 60, "test/build"),
    Stage("workflows", "the workflows of continuous integration (test/workflows)", COMPUTE, 40, "test/workflows",
          guards=(".github/", "test/workflows")),
    Stage("site", "README.md and docs/ as a site, no link broken (site)", COMPUTE, 30, "site/build",
          guards=("site/", "docs/", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/HISTORY.md", "examples/",
                  "monitoring/")),
    Stage("unit", "src/core/ without a server, built by both compilers (test/unit)", COMPUTE, 60,
          UNIT, f"{UNIT} && make -C test/unit check SAN=1"),
    Stage("stress", "src/core/ with many threads and sanitizers (test/stress)", COMPUTE, 120,
          "make -C test/stress check CC=gcc", "make -C test/stress plain tsan asan CC=gcc SECONDS_RUN=120"),
    Stage("fuzz", "readers of damaged notifications, with libFuzzer (test/fuzz)", COMPUTE, 30,
          "make -C test/fuzz queue wal SECONDS_RUN=3", "make -C test/fuzz queue wal SECONDS_RUN=600"),
    Stage("analysis", "clang-tidy, gcc's analyzer, valgrind (test/analysis)", COMPUTE, 240,
          ANALYSED.format("analysis") + "test/analysis/run", "test/analysis/run", guards=ANALYSIS),
    Stage("analysis-17", "its compilers' part with those of Debian's stable, where PostgreSQL 17 is", COMPUTE, 300,
          ANALYSED.format("analysis-17") + "python3 test/check/majors.py --analysis 17 tidy analyzer",
          "python3 test/check/majors.py --analysis 17", guards=ANALYSIS),
    Stage("sanitize", "the tests, in a server with assertions, and with gcc's sanitizers (test/analysis)", COMPUTE, 3600,
          "test/analysis/run cassert sanitize", only_at_length=True),
    # A model's states depend on its text alone, so that a change of src/ cannot change the result.
    Stage("model", "models of src/core/, searched to the end (test/model)", COMPUTE, 400, "test/model/run",
          guards=("test/model/",)),
    Stage("model-large", "the same with larger bounds", COMPUTE, 7200, "test/model/run --large", only_at_length=True),
    Stage("canaries", "bugs put in on purpose, which unit tests, stress and fuzzer must find (test/canary)", COMPUTE, 350,
          "make -C test/unit canary && make -C test/stress some-canaries && make -C test/fuzz some-canaries",
          "make -C test/unit canary && make -C test/stress canary && make -C test/fuzz canary",
          guards=("src/core/", "test/canary", "test/unit/", "test/stress/", "test/fuzz/")),

    Stage("regress", "SQL, on a server with pg_herald and on a stock server (test/regress)", SERVERS, 15,
          "python3 test/run_sql.py regress herald && python3 test/run_sql.py regress stock"),
    Stage("isolation", "concurrent sessions, on both servers as well (test/isolation)", SERVERS, 15,
          "python3 test/run_sql.py isolation herald && python3 test/run_sql.py isolation stock"),
    Stage("pytest", "many clients, exits, crashes, protocol (test/py)", SERVERS, 400,
          f"{CHECKED}{PYTEST} {PARALLEL} -m 'not alone and not long' {REST}",
          f"{CHECKED}{PYTEST} {PARALLEL} -m 'not alone' {REST}"),
    Stage("faults", "kill -9, SIGSTOP and errors in every stage (test/py/faults)", SERVERS, 120,
          f"{PYTEST} {PARALLEL} -m 'not alone' test/py/faults",
          f"export HERALD_FAULTS_S=60; {PYTEST} {PARALLEL} -m 'not alone' test/py/faults"),
    Stage("alone", "those tests of test/py that compare times, one after the other, on disk", SERVERS, 120,
          f"export CHECK_TMPDIR={DISK}; {PYTEST} -m alone test/py --ignore=test/py/test_bench.py --ignore=test/py/tools"),
    Stage("differential", "generated programs, run on both servers (test/differential)", SERVERS, 45,
          f"{CHECKED}export HERALD_DIFFERENTIAL_SECONDS=12 HERALD_DIFFERENTIAL_CROWD_SECONDS=12; {PYTEST} test/differential",
          f"{CHECKED}export HERALD_DIFFERENTIAL_SECONDS=450 HERALD_DIFFERENTIAL_CROWD_SECONDS=450; {PYTEST} test/differential"),
    Stage("messages", "raw messages that no driver sends (test/fuzz/run)", SERVERS, 20, f"{CHECKED}test/fuzz/run --seconds 8",
          f"{CHECKED}test/fuzz/run --seconds 300"),
    Stage("soak", "everything at once, clients that resume among it; each notification accounted for (test/soak)", SERVERS, 60,
          f"{CHECKED}test/soak/run --seconds 30 && {FALSIFIED.format('resumer')}",
          f"{CHECKED}test/soak/run --seconds 1800 && {' && '.join(map(FALSIFIED.format, ('watcher', 'resumer', 'reader')))}"),
    Stage("failover", "three servers that fail and take over; clients that resume on any of them (test/failover)", SERVERS, 90,
          f"{CHECKED}test/failover/run --seconds 25 && {MISSING}",
          f"{CHECKED}test/failover/run --seconds 600 && test/failover/run --seconds 300 --asynchronous &&"
          f" test/failover/run --seconds 300 --mixed && {MISSING} && {DOUBLED} && {IGNORED}"),
    Stage("patroni", "Patroni: a roll-out, a switchover, a failover; clients that resume (test/patroni)", SERVERS, 600,
          f"{CHECKED}test/patroni/run && {PATRONI_FALSIFIED.format('unlogged', 'had to read the table')} &&"
          f" {PATRONI_FALSIFIED.format('missing', '1 missing')}", only_at_length=True),
    Stage("clients", "the client packages: what breaks, fails over and is killed; a ledger of it (test/clients)", SERVERS, 120,
          f"test/clients/prepare && {CHECKED}{PYTEST} {PARALLEL} -m 'not long' test/clients",
          f"test/clients/prepare && {CHECKED}export HERALD_CLIENTS_ROUNDS=6 HERALD_CLIENTS_LEDGER_S=600"
          f" HERALD_CLIENTS_NOTIFICATIONS=200000 HERALD_CLIENTS_LARGE=20000; {PYTEST} {WAITING} test/clients",
          guards=CLIENTS),
    Stage("tools", "what installs, builds and shows: scripts/, ./demo, ./check itself (test/py/tools)", SERVERS, 160,
          f"{PYTEST} test/py/tools", guards=TOOLS),
    Stage("monitoring", "the dashboard and the alerts, with Prometheus under load (test/monitoring)", SERVERS, 60,
          f"scripts/install-deps monitoring; {PYTEST} test/monitoring",
          guards=("monitoring/", "test/monitoring/", "harness/", "sql/", "src/views/", "src/cache/")),
    Stage("bench", "that bench/run works, not how fast (test/py/test_bench.py)", SERVERS, 240,
          f"scripts/install-deps bench; {PYTEST} test/py/test_bench.py",
          guards=("bench/", "docs/performance", "harness/", "sql/", "src/views/", "test/py/test_bench.py")),
    Stage("drivers", "client libraries, as applications use them (test/drivers)", COMPUTE, 300, "./check --drivers",
          only_at_length=True),
    Stage("frameworks", "job queues and web frameworks, as their users run them (test/frameworks)", COMPUTE, 600,
          "./check --frameworks", only_at_length=True),
    Stage("debian-packages", "packages, from their sources to their removal (test/packages)", COMPUTE, 700,
          "./check --packages 15 17 18 19", only_at_length=True),
    Stage("arm64", "cross-built for ARM64, and tested in an emulator (test/packages/arm64)", COMPUTE, 1800,
          "./check --packages arm64", only_at_length=True),

    # Nearly each condition in compat.h is true from one major on, or up to one: the oldest and the newest run both of its sides.
    *(Stage(f"major-{major}", f"PostgreSQL {major}: the seam set; with --everything all that depends on the server", MAJORS,
            360, f"python3 test/check/majors.py {major}", f"python3 test/check/majors.py --whole {major}")
      for major in (19, 15)),  # the newest and the oldest
    *(Stage(f"major-{major}", f"PostgreSQL {major}: the same; only SQL if what depends on the version is unchanged", MAJORS,
            360, f"python3 test/check/majors.py {major}", f"python3 test/check/majors.py --whole {major}", guards=VERSIONS,
            unchanged=f"python3 test/check/majors.py --sql {major}")
      for major in (16, 18, 17)),  # analysis-17 uses the system of 17
)

# The stages run in another major's system. `seam`, the tests that another server version can change, runs only there.
# Tests that run on a server without pg_herald as well leave that one out here: what they expect is the same for both.
SEAM = Stage("seam", "those tests of test/py that another major version of the server can change", SERVERS, 90,
             f"{PYTEST} {PARALLEL} -m 'seam and not alone' -k 'not stock' test/py --ignore=test/py/test_bench.py --ignore=test/py/tools")
NAMES_PREPARE = ("packages", "python", "install")
NAMES_SQL = ("regress", "isolation")
NAMES_SEAM = (*NAMES_SQL, "seam")
NAMES_WHOLE = (*NAMES_SQL, "pytest", "faults", "alone", "differential", "soak", "failover")


def named(name: str) -> Stage | None:
    """The stage of that name."""
    return next((stage for stage in (*STAGES, SEAM) if stage.name == name), None)
