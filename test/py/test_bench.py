"""Tests that the benchmarks work, not how fast anything is."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP))

from bench.families import invalidation, targets  # noqa: E402
from bench.family import Skipped, start_cluster  # noqa: E402
from bench.measuring import durable, profiling  # noqa: E402
from bench.measuring.bystander import bystander, steady_commit  # noqa: E402
from bench.measuring.caches import prepare  # noqa: E402
from bench.measuring.laggard import Laggards, disk_bytes, in_transaction  # noqa: E402
from bench.measuring.logged import LOGGED, UNLOGGED, latency, set_logged  # noqa: E402
from bench.measuring.measure import DBNAME, MeasureError, heard_exactly, insert  # noqa: E402
from bench.measuring.partitions import BATCH, GROUPS, publish  # noqa: E402
from bench.measuring.readers import WAYS, Readers, read  # noqa: E402
from bench.measuring.resume import Reconnecting, alone, reconnect  # noqa: E402
from bench.measuring.standby import applied, beside_other_wal, catch_up, listen, visible  # noqa: E402
from bench.reporting import figures, raw  # noqa: E402
from harness import server_user  # noqa: E402
from harness.installation import OWN  # noqa: E402
from harness.listeners import Listeners  # noqa: E402
from harness.standby import Standby  # noqa: E402

MARK = "HERALD_TEST_MARK"
SMOKE_TIMEOUT_S = 300
END_TIMEOUT_S = 90

pytestmark = pytest.mark.timeout(2 * SMOKE_TIMEOUT_S)

if subprocess.run([TOP / "bench/run", "--help"], capture_output=True).returncode != 0:
    pytest.skip("what the benchmarks need is not installed (scripts/install-deps bench)",
                allow_module_level=True)


def start(*arguments: str) -> tuple[subprocess.Popen, str]:
    """Starts bench/run in its own process; all processes that it starts inherit the mark in their environment."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen([TOP / "bench/run", "--as-installed", *arguments], text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env=os.environ | {MARK: mark}, start_new_session=True)
    return process, mark


def marked(mark: str) -> dict[int, list[str]]:
    """The command lines, by pid, of the processes that carry a mark."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_text(errors="replace").split("\0")
            except OSError:
                pass  # the process has ended, or belongs to another user
    return found


def wait_until(condition, what: str, timeout_s: float):
    """Returns the condition's value as soon as it is true."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    pytest.fail(f"{what}: not within {timeout_s} s")


def running(mark: str, *programs: str) -> dict[int, list[str]]:
    """The processes that carry a mark and run one of these programs."""
    return {pid: words for pid, words in marked(mark).items() if os.path.basename(words[0]) in programs}


def temporary_folders(mark: str) -> set[str]:
    """Our temporary folders in the command lines of marked processes. The installation does not count, although it is
    in such a folder if the server's user cannot read the tree."""
    return {found[0] for words in marked(mark).values() for word in words
            for found in [re.match(rf"({re.escape(server_user.TEMPORARY_FOLDER)}|/tmp)/herald-[^/]+", word)]
            if found} - {str(OWN.resolve())}


@pytest.fixture
def ended():
    """ended(process, mark) registers a run; its remaining processes and folders are removed after the test."""
    runs = []
    yield lambda process, mark: runs.append((process, mark))
    for process, mark in runs:
        folders = temporary_folders(mark)
        process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
        for pid in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        process.wait()
        process.stdout.close()


RUN_LINE = {"kind": "run", "time": "2026-01-02T03:04:05+0000", "cpu": "a CPU", "cpus": 2, "memory": "4194304 kB",
            "kernel": "Linux 6.1.0-x", "postgres": "PostgreSQL 15.1 (a packager)", "pg_herald": "1.0", "git": "abc",
            "parameters": {"families": ["targets", "signalling"]}}
README_TEXT = "# A title\n\n<!-- figures: begin -->\nold\n<!-- figures: end -->\n\nand more\n"


def small_run(stock, herald):
    """Raw result lines of scenario 100 → 1, and of signalling with 8 connections."""
    def line(family, point, case, number, tps):
        return {"kind": "measurement", "family": family, "point": point, "case": case, "round": number,
                "figures": {"value": tps, "tps": tps, "delivered": True}}

    return "\n".join(json.dumps(one) for one in [RUN_LINE, *(
        line(family, point, case, number, tps + number)
        for family, point in (("targets", {"scenario": "hundred_to_one"}), ("signalling", {"notifiers": 8}))
        for number in range(6) for case, tps in (("stock", stock), ("herald", herald)))])


@pytest.fixture
def document_tree(tmp_path):
    """A tree with the documents that a run writes: the pages of figures as they are in this tree, and a README."""
    for folder in ("performance", "plots"):
        shutil.copytree(TOP / "docs" / folder, tmp_path / "docs" / folder)
    shutil.copy(TOP / "docs/performance.md", tmp_path / "docs")
    (tmp_path / "README.md").write_text(README_TEXT, encoding="utf-8")
    (tmp_path / "docs/plots/of_another_run.svg").write_text("<svg/>", encoding="utf-8")
    return tmp_path


def written(tree):
    """The texts of all files in the tree, but raw lines."""
    return {str(path.relative_to(tree)): path.read_text(encoding="utf-8")
            for path in tree.rglob("*") if path.is_file() and path.suffix != ".jsonl"}


def write_documents(tree, raw_lines):
    """Runs bench/report --docs on these lines; returns its result, and the texts of all files in the tree."""
    (tree / "run.jsonl").write_text(raw_lines, encoding="utf-8")
    result = subprocess.run([TOP / "bench/report", "--docs", tree / "run.jsonl", "--tree", tree], text=True,
                            capture_output=True, check=False)
    return result, written(tree)


def test_smoke_run_measures_every_family_and_writes_a_report(ended, document_tree):
    """Every family measures one point without an error; the HTML page needs no other file; documents can be written."""
    process, mark = start("--smoke")
    ended(process, mark)
    output, _ = process.communicate(timeout=SMOKE_TIMEOUT_S)
    assert process.returncode == 0, output[-4000:]
    results = TOP / output.rpartition("Raw lines: ")[2].partition(",")[0]
    run = raw.Run.load(results)
    listed = subprocess.run([TOP / "bench/run", "--list"], text=True, capture_output=True, check=True).stdout
    assert run.families() == [line.split()[0] for line in listed.splitlines()]
    page = results.with_suffix(".html").read_text(encoding="utf-8")
    assert page.count("<h2") == len(run.families())
    for outside in ("src=", "<link", "<script", "@import", "url(http"):
        assert outside not in page
    assert "stock" in page and "herald" in page and "<svg" in page
    assert not marked(mark)
    result, texts = write_documents(document_tree, results.read_text(encoding="utf-8"))
    assert result.returncode == 0, result.stderr
    missing = set(re.findall(r"Not measured by this run; `bench/run (\w+)`", "".join(texts.values())))
    assert missing <= {"targets", "scalability", "latency"}  # one point is not enough for each of their tables


@pytest.mark.parametrize(("program", "number"), [
    ("pg_ctl", signal.SIGINT), ("pgbench", signal.SIGINT), ("pgbench", signal.SIGTERM),
    ("pingpong", signal.SIGTERM), ("perf", signal.SIGINT)])
def test_interrupt_leaves_nothing(ended, program, number):
    """A signal during server start, a measurement or a profile leaves no process and no folder."""
    process, mark = start("--quick", "scalability")
    ended(process, mark)
    known = {"pg_ctl": 1, "perf": 3}.get(program, 2)

    def folders_in_use():
        # perf ends at once, and is started again, if a process that it shall watch has ended: its data folder then
        # appears in a later call.
        if running(mark, program):
            folders = temporary_folders(mark)
            return folders if len(folders) >= known else None
        return None if process.poll() is None else "ended"

    folders = wait_until(folders_in_use, f"{program} runs", SMOKE_TIMEOUT_S)
    if folders == "ended" and program == "perf":
        pytest.skip("perf may not record here")
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=END_TIMEOUT_S)
    assert process.returncode == (130 if number == signal.SIGINT else 128 + number), output[-2000:]
    wait_until(lambda: not marked(mark), "all processes end", END_TIMEOUT_S)
    assert [folder for folder in folders if os.path.exists(folder)] == []


def test_report_of_the_same_lines_is_the_same(tmp_path):
    """Page and plots depend on nothing but the raw lines, byte for byte; an incomplete last line is ignored."""
    lines = ['{"kind": "run", "host": "a & b"}']
    lines += ['{"kind": "measurement", "family": "signalling", "point": {"notifiers": %d}, "case": "%s", '
              '"round": 0, "figures": {"tps": %d}}' % measured
              for measured in ((1, "stock", 100), (1, "herald", 250), (8, "stock", 50), (8, "herald", 400))]
    made = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "run.jsonl").write_text("\n".join([*lines, '{"kind": "measu']), encoding="utf-8")
        subprocess.run([TOP / "bench/report", "run.jsonl", "--svg", "plots"], cwd=folder, check=True)
        made.append({path.name: path.read_bytes() for path in folder.rglob("*.[hs][tv][mg]*")})
    assert made[0] == made[1]
    assert set(made[0]) == {"run.html", "signalling.svg"}
    page = made[0]["run.html"].decode()
    assert "a &amp; b" in page and "+150.0 %" in page and "+700.0 %" in page


def test_exit_status_1_has_its_reason_in_the_last_lines_and_on_top_of_the_page(ended):
    """A failed measurement, here for lack of connections, is named in the last lines and on top of the page."""
    process, mark = start("--smoke", "signalling", "--set", "max_connections=5")
    ended(process, mark)
    output, _ = process.communicate(timeout=SMOKE_TIMEOUT_S)
    assert process.returncode == 1, output[-2000:]
    assert "signalling: notifiers 8, stock: failed: " in "\n".join(output.splitlines()[-4:])
    results = TOP / output.rpartition("Raw lines: ")[2].partition(",")[0]
    page = results.with_suffix(".html").read_text(encoding="utf-8")
    assert "signalling: notifiers 8, stock: failed: " in page[:page.index("<h2")]


def test_documents_are_written_by_a_run(document_tree):
    """Tables, plots and README's figures are those of the raw lines; parts of their pages that are missing there are
    shown as such, and the pages of other families stay as they are."""
    before = written(document_tree)
    result, texts = write_documents(document_tree, small_run(1000, 7000))
    assert result.returncode == 0, result.stderr
    assert set(texts) == set(before) - {"docs/plots/of_another_run.svg"}
    assert {name for name in texts if texts[name] != before[name]} == {
        "README.md", "docs/performance.md", "docs/performance/signalling.md", "docs/plots/signalling.svg"}
    page, readme, short = (texts[name] for name in ("docs/performance/signalling.md", "README.md", "docs/performance.md"))
    assert "| 100 → 1 | 1,002 (1,000–1,005) | 7,002 (7,000–7,005) | 7.0 | ≥ 5 |" in page
    assert "| machine | 2 CPUs (a CPU), Linux 6.1, 4 GB of memory;" in page and "2026-01-02" in page
    assert "](../plots/signalling.svg)" in page and "**" not in page
    assert "| 100 connections notify 1 listener, tps | stock | 1,002 | 7,002 | 7.0 |" in short and "2026-01-02" in short
    assert "| 1 connection notifies 1 listener, tps | stock | – | – | – |" in short
    assert "| 100 connections notify 1 listener | 1,002 tps | 7,002 tps | 7.0" in readme
    assert readme.startswith("# A title\n") and readme.endswith("\nand more\n") and "old" not in readme

    again, behind = write_documents(document_tree, small_run(1000, 900))
    assert again.returncode == 0
    assert "| 100 → 1 | 1,002 (1,000–1,005) | 902 (900–905) | **0.900** | ≥ 5 |" in behind["docs/performance/signalling.md"]
    assert "| ratio | 100 → 1: 0.900 (target ≥ 5) |" in behind["docs/performance.md"]
    assert behind["README.md"] != readme
    assert behind["docs/plots/signalling.svg"] != texts["docs/plots/signalling.svg"]


def test_part_that_a_run_did_not_measure_is_shown_as_such(document_tree):
    """The page of a family also has rows of `targets`: without them it says what measures them. README stays as it is."""
    lines = [line for line in small_run(1000, 7000).splitlines() if '"targets", "point"' not in line]
    result, texts = write_documents(document_tree, "\n".join(lines))
    assert result.returncode == 0, result.stderr
    assert "Not measured by this run; `bench/run targets` does." in texts["docs/performance/signalling.md"]
    assert "| 8 | 1,002 (1,000–1,005) | 7,002 (7,000–7,005) | 7.0 |" in texts["docs/performance/signalling.md"]
    assert texts["README.md"] == README_TEXT


def test_short_page_says_what_the_pages_say(document_tree):
    """docs/performance.md is what `bench/report --short-page` makes of the pages of the families, and no headline is empty."""
    def short_page():
        subprocess.run([TOP / "bench/report", "--short-page", "--tree", document_tree], check=True)
        return (document_tree / "docs/performance.md").read_text(encoding="utf-8")

    assert short_page() == (TOP / "docs/performance.md").read_text(encoding="utf-8")
    assert "| – | – | – |" not in short_page()
    page = document_tree / "docs/performance/signalling.md"
    page.write_text(page.read_text(encoding="utf-8").replace("| 100 → 1 | ", "| 100 → 1 | 1"), encoding="utf-8")
    assert short_page() != (TOP / "docs/performance.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "block", "missing"), [
    ("README.md", "figures", ("begin", "end")), ("README.md", "figures", ("begin",)),
    ("README.md", "figures", ("end",)),
    ("docs/performance/caches.md", "caches", ("begin", "end")), ("docs/performance/caches.md", "caches", ("end",)),
    ("docs/performance/signalling.md", "machine", ("begin",)), ("docs/performance.md", "behind", ("end",))])
def test_document_without_a_marker_is_an_error(document_tree, name, block, missing):
    """The error names the block, and no document is written, not even the correct one."""
    path = document_tree / name
    text = path.read_text(encoding="utf-8")
    for mark in missing:
        assert text.count(f"<!-- {block}: {mark} -->") == 1
        text = text.replace(f"<!-- {block}: {mark} -->", "")
    path.write_text(text, encoding="utf-8")
    before = {found: found.read_bytes() for found in document_tree.rglob("*") if found.is_file()}
    result, _ = write_documents(document_tree, small_run(1000, 7000))
    assert result.returncode == 1
    assert f"{name}: " in result.stderr and f"<!-- {block}: " in result.stderr
    assert {found: found.read_bytes() for found in document_tree.rglob("*")
            if found.is_file() and found.suffix != ".jsonl"} == before


def test_ratio_is_the_median_of_the_rounds_ratios():
    """A ratio compares measurements of one round; a round that lacks one is left out."""
    measured = ((0, "stock", 10), (0, "herald", 20), (1, "herald", 40), (1, "stock", 10), (2, "herald", 90))
    lines = [{"point": {"notifiers": 1}, "case": case, "round": number, "figures": {"tps": tps}}
             for number, case, tps in measured]
    assert figures.ratios(lines, "tps", notifiers=1) == [2, 4]
    assert figures.ratio(figures.ratios(lines, "tps", notifiers=1)) == "3.0 (2.0–4.0)"
    assert figures.differences(lines, "tps", "herald", "stock", notifiers=1) == [10, 30]


@pytest.fixture(scope="module")
def server():
    """start(name) starts a server as bench/run does; the name is "stock", "herald" or "caches"."""
    with ExitStack() as stack:
        started = {}

        def start_once(name):
            if name not in started:
                started[name] = start_cluster(stack, name, {"max_connections": 40})
            return started[name]

        yield start_once


def at_its_rate(measure, is_so):
    """The first of up to 8 measurements in which the machine was not too busy to reach the rate."""
    return next(found for _ in range(8) if is_so(found := measure()))


def notify(cluster, payloads):
    """Sends each payload in a transaction of its own."""
    cluster.psql("".join(f"NOTIFY channel_1, '{payload}';" for payload in payloads), DBNAME)


@pytest.mark.parametrize("name", ["stock", "herald"])
def test_bystander_and_busy_client_are_measured_while_listeners_hear(server, name):
    """Both measure their own statements at the set rate, and each NOTIFY sent meanwhile reaches each listener."""
    cluster = server(name)
    beside = at_its_rate(lambda: bystander(cluster, 0.5, listeners=5),
                         lambda found: found["notifier"]["sent"] >= 10 and found["bystander"]["counted"] > 200)
    assert beside["delivered"]
    assert 0 < beside["p50_us"] <= beside["p90_us"] <= beside["p99_us"]
    assert 0 < beside["sent_p50_us"] <= beside["p50_us"]
    assert bystander(cluster, 0.2, listeners=0)["delivered"]
    for busy in (False, True):
        client = at_its_rate(lambda busy=busy: steady_commit(cluster, 0.5, listeners=5, busy=busy),
                             lambda found: found["steady"]["counted"] >= 15)
        assert client["delivered"] and client["value"] > 0


def test_scenarios_share_the_measurements_of_one():
    """Each percentile of the bystander has its own target; the point is measured once."""
    def line(case, **measured):
        return {"point": {"scenario": "bystander"}, "case": case, "round": 0, "figures": measured}

    lines = [one | {"round": number} for number in range(figures.INTERVAL_ROUNDS_MIN) for one in (
        line("stock", p50_us=100, p90_us=100, p99_us=100), line("herald", p50_us=100, p90_us=110, p99_us=90),
        line(targets.NOBODY_LISTENS, p50_us=80, p90_us=80, p99_us=80))]
    ratios, _ = targets.tables(lines)
    assert [row[3:] for row in ratios.rows] == [
        ("1.000", "≤ 1", figures.MET), ("1.100", "≤ 1", figures.MISSED), ("0.900", "≤ 1", figures.MET),
        ("1.250", "≤ 1.20", figures.MISSED)]
    too_few, _ = targets.tables([one for one in lines if one["round"] > 0])
    assert {row[5] for row in too_few.rows} == {f"{figures.NO_VERDICT}: 5 of 6 rounds"}
    assert [point.parameters["scenario"] for point in targets.points(quick=True)
            if "bystander" in point.parameters["scenario"]] == ["bystander"]


@pytest.mark.parametrize("name", ["stock", "herald"])
@pytest.mark.parametrize(("fall_behind", "go_on"), [
    (Laggards.begin, Laggards.commit), (Laggards.stop, Laggards.start)])
def test_laggards_hear_nothing_until_they_go_on(server, name, fall_behind, go_on):
    """Laggards receive nothing until they go on, so that measurements beside them are taken while they are behind."""
    cluster = server(name)
    with Laggards(cluster, 3) as laggards, Listeners(cluster, 1, dbname=DBNAME) as others:
        fall_behind(laggards)
        notify(cluster, [f"0.{number} {'x' * 7000}" for number in range(1, 200)])  # more than a socket holds
        assert others.wait(199)["notifications"] == 199
        assert laggards.count()["notifications"] == 0
        go_on(laggards)
        laggards.wait(3 * 199)
        assert heard_exactly(laggards.count(), 199)


@pytest.mark.parametrize(("payloads", "exact"), [
    (["0.1", "1.1", "0.2", "1.2"], True), (["0.1", "0.1"], False), (["0.1", "0.3"], False),
    (["0.2", "0.1"], False), (["0.1", "x"], False), (["0.1", "99.1"], False)])
def test_client_sees_what_is_wrong_with_the_sequence(server, payloads, exact):
    """A notification that is missing, duplicated, out of order or of an unknown sender is detected."""
    cluster = server("stock")
    with Laggards(cluster, 2) as laggards:
        notify(cluster, payloads)
        laggards.wait(2 * len(payloads))
        assert heard_exactly(laggards.count(), len(payloads)) is exact
        assert not heard_exactly(laggards.count(), len(payloads) + 1)


def test_laggards_are_behind_on_disk(server):
    """Laggards in a transaction need files from the start, one copy for all of them; no file remains afterwards."""
    cluster = server("herald")
    measured = {behind: in_transaction(cluster, 1, behind=behind) for behind in (1, 3)}
    for behind, found in measured.items():
        assert found["delivered"] and found["exact"], behind
        assert 0 < found["disk_mb"] < found["sent_mb"]
        assert found["caught_up_per_s"] > 0 and found["behind_s"] >= 1
    assert disk_bytes(cluster) == 0


@pytest.mark.parametrize("way", ["herald", "table", "read"])
def test_clients_that_come_back_receive_the_outage_beside_others(server, way):
    """Each returning client receives the whole outage, repeatedly; notifications to others are counted separately."""
    cluster = server("herald")
    at_its_rate(lambda: alone(cluster, 0.3, missed=1500, rate=1000),
                lambda found: found["tps"] == pytest.approx(1000, rel=0.2))
    found = reconnect(cluster, 0.3, way=way, clients=5, missed=1500, rate=1000)
    assert found["delivered"] and found["caught_up"] >= 1 and 0 < found["tps"] < 1100
    assert found["caught_up_per_s"] == pytest.approx(5 * 1500 / found["caught_up_s"])
    assert found["mb_per_s"] * 1e6 > 60 * found["caught_up_per_s"]


def test_client_that_does_not_receive_the_whole_outage_is_no_figure(server):
    """The right number of notifications is not enough: they must be the right ones, in order."""
    numbers = "SELECT n, '0:' || n FROM generate_series(1, 10) n "
    with Reconnecting(server("herald"), 2) as held:
        for _ in range(2):
            assert held.catch_up(numbers, 10)["notifications"] == 20
        for wrong in ("WHERE n <> 5", "ORDER BY n % 3, n", "UNION ALL SELECT 10, '0:10'"):
            with pytest.raises(MeasureError, match="or not in order"):
                held.catch_up(numbers + wrong, {"WHERE n <> 5": 9}.get(wrong, 10))
        assert held.catch_up(numbers, 10)["notifications"] == 20


@pytest.mark.parametrize("way", WAYS)
def test_readers_receive_what_is_sent_however_they_read(server, way):
    """Readers that poll receive later; a wait that ends without a notification is not counted, and is repeated."""
    cluster = server("herald")
    found = at_its_rate(lambda: read(cluster, 0.5, way=way, readers=5, rate=21, wait_s=0.1),
                        lambda found: found["sent"] >= 10)
    assert found["delivered"]
    assert found["delivery_us_p50"] > (10_000 if way == "poll" else 0)
    assert 0 < found["cpu_server_percent"] and 0 < found["cpu_us"]
    with Readers(cluster, way, 3, wait_s=0.1) as held:
        before = held.count()["notifications"]
        time.sleep(0.4)
        assert held.count()["notifications"] == before


def wal_bytes(cluster):
    """How much WAL the server has written."""
    return int(cluster.psql("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))


def test_logged_notifications_are_in_the_wal_and_received(server):
    """The logged channel is logged and the other one is not; both are received, also at a rate."""
    cluster = server("herald")
    set_logged(cluster)
    written = {}
    for script, channel in (("notify_100_bytes", UNLOGGED), ("notify_100_bytes_logged", LOGGED)):
        before = wal_bytes(cluster)
        found = insert(cluster, 1, script=script, clients=2, channel=channel)
        assert found["delivered"]
        written[channel] = (wal_bytes(cluster) - before) / found["pgbench"]["transactions"]
        assert latency(cluster, 0.3, channel=channel, listeners=2, rate=50)["delivery_us_p50"] > 0
    assert written[LOGGED] > written[UNLOGGED] + 100


def test_groups_read_all_partitions(server):
    """Each message of each batch is read once by each group."""
    found = publish(server("herald"), 0.5, rate=40 * BATCH)
    assert found["delivered"] and found["delivery_us_p50"] > 0
    assert found["sent"] == pytest.approx(20, abs=1)
    assert found["read_per_s"] == pytest.approx(GROUPS * found["written_per_s"])


@pytest.mark.parametrize("way", ["recvlogical", "table", "jetstream"])
def test_other_durable_ways_receive_all(server, way):
    """Each message is received; its time is that from when it was due."""
    try:
        with ExitStack() as stack:
            if way == "recvlogical":
                decoding = start_cluster(stack, "stock", {"max_connections": 10, "wal_level": "logical"})
                found = durable.recvlogical(decoding, 0.3, rate=50)
                assert decoding.psql("SELECT count(*) FROM pg_replication_slots") == "0"
            elif way == "table":
                found = durable.table(server("stock"), 0.3, rate=50, every_ms=20)
            else:
                found = durable.jetstream(stack.enter_context(durable.JetStream()), 0.3, rate=50)
    except Skipped as why:
        pytest.skip(str(why))
    assert found["delivered"] and found["sent"] == pytest.approx(15, abs=1)
    assert 0 < found["delivery_us_p50"] <= found["delivery_us_p99"]
    assert 0 < found["commit_us_p50"] <= found["commit_us_p99"]


def test_row_is_visible_and_listeners_hear_on_a_standby(server):
    """Rows and notifications arrive on the standby, beside other WAL as well, which the relay reads."""
    with Standby(server("herald")) as standby:
        for lag in (visible, applied):
            assert lag(standby, 0.3, rate=50)["delivery_us_p50"] > 0
        for on_primary in (False, True):
            assert listen(standby, 0.3, listeners=3, rate=50, on_primary=on_primary)["delivered"]
        found = beside_other_wal(standby, "herald", 1, mb_per_s=2, row_bytes=7000)
        assert found["delivered"] and 1 < found["wal_mb_per_s"] < 4
        assert found["relay_percent"] > 0 and found["startup_percent"] > 0
        assert found["relay_behind_mb_max"] >= 0 and found["replay_behind_mb_max"] >= 0


def test_replay_that_is_late_is_in_all_times(server):
    """While the replay is paused no row is visible on the standby, no commit with remote_apply ends, and no
    notification is received; less than half of the sends fall into the pause."""
    primary, pause_s = server("herald"), 0.5
    sends = "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'bench/listen'"
    with Standby(primary) as standby, ThreadPoolExecutor(1) as threads:
        for measure in (visible, applied, partial(listen, listeners=1)):
            catch_up(standby)
            measured = threads.submit(measure, standby, 2, rate=20)
            wait_until(lambda: primary.psql(sends) == "t", "the client sends", END_TIMEOUT_S)
            standby.psql("SELECT pg_wal_replay_pause()")
            time.sleep(pause_s)
            standby.psql("SELECT pg_wal_replay_resume()")
            found = measured.result(END_TIMEOUT_S)
            assert found["delivery_us_p99"] > 0.8e6 * pause_s
            assert found.get("commit_us_p50", 0) < 0.8e6 * pause_s


@pytest.mark.parametrize(("name", "way", "stale"), [("stock", "dummy relcache", 1), ("caches", "herald", 0)])
def test_stale_answer_is_counted(server, connect, name, way, stale):
    """A stale answer that is due to the dummy relcache's race is counted; herald's cache gives none."""
    cluster = server(name)
    prepare(cluster, way)
    reader = connect(cluster, DBNAME)
    wrong = "SELECT count(*) FROM answers WHERE cached IS DISTINCT FROM computed"
    assert reader.execute(wrong).fetchone() == (0,)
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT 1")
    cluster.psql("UPDATE grants SET active = NOT active WHERE project = 1 AND account = 40", DBNAME)
    assert reader.execute(wrong).fetchone() == (0,)
    reader.execute("COMMIT")
    assert reader.execute(wrong).fetchone() == (stale,)


@pytest.mark.parametrize("policy", invalidation.POLICIES)
def test_missed_message_is_noticed(tmp_path, policy):
    """The benchmark detects a policy that loses messages: with its resets removed, readers miss some."""
    core, folder = tmp_path / "core", tmp_path / "inval"
    shutil.copytree(TOP / "src/core", core, ignore=shutil.ignore_patterns("*.o", "*.bc"))
    shutil.copytree(invalidation.FOLDER, folder, ignore=shutil.ignore_patterns("build"))
    for path, before, after in (
            (core / "inval_queue.c", "if (position + queue->size >= head)", "if (position <= head)"),
            (folder / "old.c", ".position = queue->head,.reset = true", ".position = queue->head")):
        text = path.read_text(encoding="utf-8")
        assert text.count(before) == 1
        path.write_text(text.replace(before, after), encoding="utf-8")
    counted = []
    for place, options in ((invalidation.FOLDER, ()), (folder, (f"CORE={core}",))):
        subprocess.run(["make", "-s", "-C", place, *options], check=True)
        result = subprocess.run([place / "build/inval", policy, "--backends", "40", "--active", "40",
                                 "--size", "1024", "--messages", "50", "--work", "10000", "--seconds", "1"],
                                capture_output=True, text=True, check=True, timeout=END_TIMEOUT_S)
        counted.append(json.loads(result.stdout))
    sound, broken = counted
    assert sound["resets"] > 0 and sound["missed"] == 0
    assert broken["missed"] > 0


PERF_SCRIPT = """
 11
\tffffffff81 try_to_wake_up ([kernel.kallsyms])
\tffffffff82 __x64_sys_kill ([kernel.kallsyms])
\t     98ac9 __GI_kill (inlined)
\t     45821 [unknown] (/usr/lib/postgresql/15/bin/postgres)
\t     28494 AtCommit_Notify (/usr/lib/postgresql/15/bin/postgres)
\t     47d35 PostgresMain (/usr/lib/postgresql/15/bin/postgres)

 12
\t     28494 [unknown] (/usr/lib/postgresql/15/bin/postgres)
\t     28495 LWLockAcquire (/usr/lib/postgresql/15/bin/postgres)
\t     47d35 PostgresMain (/usr/lib/postgresql/15/bin/postgres)

 12
\t     28494 mark_batch (/usr/lib/postgresql/15/lib/pg_herald.so)
\t     47d35 PostgresMain (/usr/lib/postgresql/15/bin/postgres)

 13
\t     28494 palloc (/usr/lib/postgresql/15/bin/postgres)
\t     28495 proc_exit (/usr/lib/postgresql/15/bin/postgres)
\t     47d35 PostgresMain (/usr/lib/postgresql/15/bin/postgres)

 10
\t     28494 PostmasterMain (/usr/lib/postgresql/15/bin/postgres)
"""


def test_profile_begins_again_without_a_process_that_has_ended(server, monkeypatch):
    """The first list of processes contains a backend that has ended; profiling succeeds with the second list."""
    cluster, listed = server("herald"), []
    found = profiling.server_processes

    def measure():
        return {"rows": cluster.psql("SELECT count(*) FROM generate_series(1, 2000000)", DBNAME)}

    try:
        profiling.profiled(cluster, measure)
    except Skipped as why:
        pytest.skip(str(why))
    ended_process = subprocess.Popen(["true"])
    ended_process.wait()

    def with_one_that_has_ended(postmaster):
        listed.append(found(postmaster) + [ended_process.pid] * (not listed))
        return listed[-1]

    monkeypatch.setattr(profiling, "server_processes", with_one_that_has_ended)
    assert profiling.profiled(cluster, measure)["samples"] > 0
    assert len(listed) == 2


def test_profile_counts_every_sample_once():
    """A sample counts for the innermost group on its stack; starting and ending backends counts for none."""
    found = profiling.summarize(profiling.parse(PERF_SCRIPT, postmaster=10))
    assert found["samples"] == 3
    assert found["groups"] == pytest.approx({
        "signals sent: kill()": 1 / 3, "locks": 1 / 3, "pg_herald's own code": 1 / 3})
    assert dict(found["top"]).keys() == {"kill()", "static, below LWLockAcquire()", "mark_batch()"}
    assert [line[:2] for line in found["tree"]][:3] == [
        [0, "PostgresMain"], [1, "AtCommit_Notify"], [2, "kill()"]]
