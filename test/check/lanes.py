"""Runs stages: PREPARE first, then COMPUTE at idle priority beside SERVERS and, at their end, MAJORS."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import results
from changed import TOP
from harness.installation import find_installation
from results import Result
from stages import COMPUTE, DISK, MAJORS, PREPARE, SERVERS, Stage

RESULTS = TOP / "test/results"
MAJORS_AT_ONCE = 2
END_S = 60  # for a stage to stop its servers
# A stage is ended after this multiple of its budget, since it hangs.
PATIENCE = 10
PATIENCE_S_MIN = 900
PATIENCE_S_AT_LENGTH = 4 * 3600
AUTOGROUP = "/proc/self/autogroup"
MEMORY = "/dev/shm"
MEMORY_BYTES_MIN = 6 * 1024 ** 3  # a run uses less than 2 GB


class Run:
    """One run of ./check."""

    def __init__(self, at_length: bool, leave_out_own: bool):
        self.at_length = at_length
        self.leave_out_own = leave_out_own  # leave out this machine's major, which the lane SERVERS tests
        self.results: list[Result] = []
        self.broken: list[str] = []
        self._running: dict[str, subprocess.Popen] = {}
        self._lock = threading.Lock()
        self._interrupted = False
        cpus = len(os.sched_getaffinity(0))
        self.environment = {"CHECK_TMPDIR": _temporary_folder(at_length)} | os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
        self.workers = os.environ.get("CHECK_WORKERS", str(cpus + 1))

    def all(self, stages: list[Stage]) -> None:
        """Runs the stages; their results are in self.results. If a stage of PREPARE fails, the others do not run."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        # SIGINT, too: a shell starts background processes with it ignored, and the tests send it.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        try:
            for stage in _of(stages, PREPARE):
                self._one(stage)
                if self.broken:
                    return
            if any(stage.lane != PREPARE for stage in stages) and not self._find_server():
                return
            lanes = [threading.Thread(target=self._lane, args=(_of(stages, COMPUTE), [])),
                     threading.Thread(target=self._lane, args=(_of(stages, SERVERS), _of(stages, MAJORS)))]
            for lane in lanes:
                lane.start()
            for lane in lanes:
                lane.join()
        except KeyboardInterrupt:
            self._interrupt()
            print("interrupted", file=sys.stderr)
            sys.exit(130)

    def _find_server(self) -> bool:
        """Updates the installation on which the tests run; False if that fails."""
        found = subprocess.run([sys.executable, "-m", "harness.prefix"], cwd=TOP, env=self.environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if found.returncode != 0:
            print(found.stderr)
            self.results.append(Result("install", failed=1, ok=False))
            self.broken.append("install")
            return False
        self.environment["PG_CONFIG"] = found.stdout.strip()
        self.own = f"major-{find_installation(found.stdout.strip()).major}"
        return True

    def _lane(self, stages: list[Stage], majors: list[Stage]) -> None:
        for stage in stages:
            self._one(stage)
        if self._interrupted:
            return
        with ThreadPoolExecutor(MAJORS_AT_ONCE) as pool:
            list(pool.map(self._one, [stage for stage in majors if not (self.leave_out_own and stage.name == self.own)]))

    def _one(self, stage: Stage) -> None:
        """Runs a stage, with a time limit, and reports its result."""
        if self._interrupted:
            return
        log = RESULTS / f"{stage.name}.log"
        began, killed = time.monotonic(), ""
        process = self._start(stage, log)
        if process is None:
            return
        limit_s = self._limit_s(stage)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            killed = (f"\nended after {limit_s:g} s (CHECK_STAGE_S sets another limit)\n{results.doing(stage, log)}\n")
            _end(process)
        with self._lock:
            self._running.pop(stage.name, None)
        if self._interrupted:
            return
        if killed:
            with open(log, "a", encoding="utf-8") as file:
                file.write(killed)
        result = results.counted(stage, log, process.returncode == 0 and not killed)
        result.seconds, result.budget_s = time.monotonic() - began, stage.budget_s
        self._tell(result, log)

    def _start(self, stage: Stage, log: Path) -> subprocess.Popen | None:
        command = (self.at_length and stage.at_length or stage.command).replace("{workers}", self.workers)
        # After SIGTERM, bash waits for the program that it runs, which stops its servers.
        call = ["bash", "-c", f"trap 'exit 143' TERM; {command}"]
        if stage.lane == COMPUTE and shutil.which("chrt"):
            call = ["chrt", "--idle", "0", "nice", "-n", "19", *call]
            # With autogroups, Linux divides CPU time among sessions, and priorities count within a session only. A server
            # that the stage starts is a session of its own, and so has its share.
            call[-1] = f"[ ! -w {AUTOGROUP} ] || echo 19 >{AUTOGROUP}; {call[-1]}"
        with self._lock, open(log, "wb") as output:
            if self._interrupted:
                return None
            environment = self.environment
            if stage.lane == MAJORS:
                environment = {name: value for name, value in environment.items() if name != "PG_CONFIG"}
                environment["CHECK_WORKERS"] = str(max(1, int(self.workers) - 1))
            process = subprocess.Popen(call, cwd=TOP, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=output, start_new_session=True)
            self._running[stage.name] = process
        return process

    def _limit_s(self, stage: Stage) -> float:
        if given := os.environ.get("CHECK_STAGE_S"):
            return float(given)
        return PATIENCE_S_AT_LENGTH if self.at_length else max(PATIENCE * stage.budget_s, PATIENCE_S_MIN)

    def _tell(self, result: Result, log: Path) -> None:
        with self._lock:
            self.results.append(result)
            skipped = f"   {result.skipped} skipped" if result.skipped else ""
            if result.ok:
                print(f"{result.stage:<16}ok      {result.seconds:5.0f} s{skipped}", flush=True)
                return
            self.broken.append(result.stage)
            print(f"{result.stage:<16}FAILED  {result.seconds:5.0f} s   {log.relative_to(TOP)}{skipped}\n"
                  f"{results.tail(log)}", flush=True)

    def _interrupt(self) -> None:
        """Ends the running stages, and waits until their servers have stopped."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        with self._lock:
            self._interrupted = True
            running = list(self._running.values())
        enders = [threading.Thread(target=_end, args=(process,)) for process in running]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()


def _temporary_folder(at_length: bool) -> str:
    """Where servers have their data: in memory, if there is enough of it and programs may run from there, as those of
    private installations do; at length on disk, so that commits wait for it.

    A run makes and removes hundreds of data folders. On ext4, a process that creates a file passes over all inodes that were
    freed in the last minute, and so a new data folder takes ten times as long.
    """
    try:
        memory = os.statvfs(MEMORY)
    except OSError:
        return DISK
    usable = memory.f_bavail * memory.f_frsize >= MEMORY_BYTES_MIN and not memory.f_flag & os.ST_NOEXEC
    return MEMORY if usable and not at_length else DISK


def _of(stages: list[Stage], lane: str) -> list[Stage]:
    return [stage for stage in stages if stage.lane == lane]


def _end(process: subprocess.Popen) -> None:
    """Ends a stage and all processes that it has started; on SIGTERM its programs stop their servers."""
    _signal(process, signal.SIGTERM)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        pass
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen, number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass
