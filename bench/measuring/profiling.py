"""Where the server's CPU time goes during a measurement: perf record, and its evaluation.

perf samples every process of one server, with whole call stacks. Each sample is counted once, in the
group of the innermost function on its stack that belongs to a group. So a kill() inside a lock's
release counts as a signal sent, as in the published drill-downs.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bench.family import Skipped
from bench.measuring.cpu import server_processes
from harness.cluster import Cluster

FREQUENCY_HZ = 499
STACK_BYTES = 8192
END_TIMEOUT_S = 60
ATTEMPTS = 5
PAUSE_S = 0.2
TOP_FUNCTIONS = 12
TREE_SHARE_MIN = 0.015
TREE_LINES_MAX = 40
UNNAMED = "[unknown]"
INLINED = "inlined"
ROOT = "PostgresMain"

_SYSCALL = r"__(?:x64|arm64)_sys_"
# Patterns that match whole names. The first match wins, from the innermost function outwards.
_GROUP_PATTERNS = {
    "signals sent: kill()": (rf"{_SYSCALL}(tg|tk)?kill", "(__GI_)?_*kill"),
    "signals received": (
        "arch_do_signal_or_restart", rf"{_SYSCALL}rt_sig\w+", "__restore_rt", r"signalfd_read\w*",
        "procsignal_sigusr1_handler", "latch_sigurg_handler"),
    "sends to clients": (rf"{_SYSCALL}send\w+", "_*(GI_+|libc_)?send"),
    "reads from clients": (rf"{_SYSCALL}recv\w+", "_*(GI_+|libc_)?recv"),
    "waiting and being woken": (
        rf"{_SYSCALL}(epoll_\w+|p?poll|p?select\w*|read)", "epoll_p?wait", "_*(GI_+|libc_)?read",
        r"WaitEventSet\w*", r"WaitLatch\w*", "SetLatch", "ResetLatch", r"\w*EventWait\w*"),
    "locks": (
        rf"{_SYSCALL}(futex\w*|semop|semtimedop)", r"LWLock\w+", "s_lock", "perform_spin_delay",
        r"Lock[AR]\w+", "ProcSleep", "ProcLockWakeup", "ProcReleaseLocks", r"PGSemaphore\w+",
        r"\w*sem_(wait|post)\w*", r"DeadLock\w+", r"GrantLock\w*", r"VirtualXactLock\w*"),
    "write-ahead log": (
        rf"{_SYSCALL}(fsync|fdatasync|p?write\w*)", r"Xlog\w+", r"XLog\w+", "XactLogCommitRecord"),
    "page faults": ("(asm_)?exc_page_fault",),
    "pre-emption and interrupts": (
        "exit_to_user_mode_loop", r"asm_sysvec_\w+", "asm_common_interrupt", r"irqentry_\w+"),
    "memory": (
        r"AllocSet\w+", r"palloc\w*", "pfree", r"repalloc\w*", r"MemoryContext\w+",
        "_*(libc_)?(malloc|free|calloc|realloc)", "_int_(malloc|free)"),
    "protocol": (
        r"pq_\w+", r"secure_\w+", "ReadyForQuery", "EndCommand", "NullCommand", "BeginCommand",
        r"printtup\w*"),
    "parsing and planning": (
        "raw_parser", r"base_yy\w+", r"core_yy\w+", r"scanner_\w+", "pg_parse_query",
        r"parse_analyze\w*", r"transform\w+", r"pg_analyze_and_rewrite\w*", "pg_rewrite_query",
        "planner", "standard_planner", r"pg_plan_quer\w+", "CreateCommandTag", "GetCommandLogLevel"),
    "pg_herald's own code": (r"herald\w+", r"pg_herald\.so"),
    "the server's own NOTIFY": (
        "(PreCommit|AtCommit|AtAbort|AtSubCommit|AtSubAbort)_Notify", r"Async_\w+", r"asyncQueue\w+",
        "NotifyMyFrontEnd", "ProcessNotifyInterrupt", "HandleNotifyInterrupt", r"SimpleLru\w+",
        r"TransactionId\w+"),
    "statistics and process title": (r"pgstat_\w+", r"set_ps_display\w*", "GetCurrentTimestamp"),
    "begin and end of transactions": (
        r"(Start|Commit|Abort)Transaction\w*", r"AtEOX\w+", r"ResourceOwner\w+", "GetSnapshotData",
        "GetTransactionSnapshot", r"ProcArrayEnd\w+", r"(Push|Pop)\w*Snapshot\w*",
        "SetCurrentStatementStartTimestamp", "CallXactCallbacks"),
    "running the statement": (
        r"Portal\w+", "ProcessUtility", "standard_ProcessUtility", "CreatePortal", r"Executor\w+",
        "exec_simple_query"),
}
GROUPS = tuple((name, re.compile("|".join(patterns))) for name, patterns in _GROUP_PATTERNS.items())
REST = "everything else"
# Functions of the C library that only make a system call, and the kernel's name of that call.
_WRAPPERS = {"epoll_wait": "epoll_wait()", "epoll_pwait": "epoll_pwait()", "kill": "kill()", "read": "read()",
             "send": "sendto()", "recv": "recvfrom()"}
# A backend's start and end are not counted.
_LEFT_OUT = {"proc_exit", "InitPostgres", "fork_process", "ClientAuthentication", "shmem_exit",
             "__run_exit_handlers"}


class _Refused(Exception):
    """perf has ended at once; the message says why."""


@contextmanager
def _recording(cluster: Cluster, file: Path):
    """A context in which perf samples all processes of a server, also those started later."""
    if not shutil.which("perf"):
        raise Skipped("perf is not installed (Debian's package linux-perf)")
    with ExitStack() as stack:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                stack.enter_context(_recording_once(cluster, file))
                break
            except _Refused as why:  # a backend of the last measurement may have ended meanwhile
                if attempt == ATTEMPTS:
                    raise Skipped(f"perf did not record, tried {ATTEMPTS} times: {why}") from why
                time.sleep(PAUSE_S)
        yield


@contextmanager
def _recording_once(cluster: Cluster, file: Path):
    """The same; _Refused if perf does not start, for instance because a process has just ended."""
    control_read, control_write = os.pipe()
    answer_read, answer_write = os.pipe()
    processes = ",".join(map(str, server_processes(cluster.postmaster_pid())))
    command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(FREQUENCY_HZ),
               "--call-graph", f"dwarf,{STACK_BYTES}", "-o", str(file), "-p", processes,
               "--delay=-1", "--control", f"fd:{control_read},{answer_write}"]
    with open(file.with_suffix(".errors"), "w+", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                                   pass_fds=(control_read, answer_write), start_new_session=True)
        try:
            os.close(control_read)
            os.close(answer_write)
            with suppress(BrokenPipeError):
                os.write(control_write, b"enable\n")
            if not os.read(answer_read, 16):  # end of file: perf has ended
                process.wait(END_TIMEOUT_S)
                errors.seek(0)
                said = " ".join(errors.read().split())
                raise _Refused(said[:200] or f"it ended with status {process.returncode} and said nothing")
            yield
            process.send_signal(signal.SIGINT)
            process.wait(END_TIMEOUT_S)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            os.close(control_write)
            os.close(answer_read)


def profiled(cluster: Cluster, run: Callable[[], dict]) -> dict:
    """Calls run() while perf records; returns its figures, with samples, groups, top and tree added.

    groups      share of the samples by group
    top         [[function, share], ...]: time in the function itself; the kernel's time counts for the
                system call
    tree        [[depth, function, share], ...]: time including callees, from PostgresMain down
    """
    with tempfile.TemporaryDirectory(prefix="herald-perf-") as folder:
        file = Path(folder) / "perf.data"
        with _recording(cluster, file):
            figures = run()
        text = subprocess.run(["perf", "script", "-i", str(file), "-F", "pid,ip,sym,dso"], text=True,
                              errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=False).stdout
    return figures | summarize(parse(text, cluster.postmaster_pid()))


def parse(text: str, postmaster: int) -> list[list[tuple[str, str]]]:
    """The output of perf script as stacks of (function, object), the innermost first.

    Stacks of the postmaster, and of backends that start or end, are left out.
    """
    stacks = []
    for block in text.strip().split("\n\n"):
        head, *lines = block.split("\n")
        frames = []
        for line in lines:
            found = re.match(r"\s*[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)? \(([^()]*)\)$", line)
            if found:
                frames.append((found[1], os.path.basename(found[2])))
        if frames and head.split()[0] != str(postmaster) and not _LEFT_OUT & {name for name, _ in frames}:
            stacks.append(frames)
    return stacks


def summarize(stacks: list[list[tuple[str, str]]]) -> dict:
    """samples, groups, top and tree of parsed stacks; see profiled()."""
    if not stacks:
        raise Skipped("perf has seen nothing of the server")
    groups = Counter(_group(stack) for stack in stacks)
    top = Counter(_own_function(stack) for stack in stacks)
    return {
        "samples": len(stacks),
        "groups": {name: groups[name] / len(stacks) for name in (*dict(GROUPS), REST) if groups[name]},
        "top": [[name, count / len(stacks)] for name, count in top.most_common(TOP_FUNCTIONS)],
        "tree": _tree(stacks),
    }


def _group(stack: list[tuple[str, str]]) -> str:
    for function, where in stack:
        for name, pattern in GROUPS:
            if pattern.fullmatch(function) or (where == "pg_herald.so" and pattern.fullmatch(where)):
                return name
    return REST


def _kernel(where: str) -> bool:
    return where.startswith("[") or where.endswith(".ko")


def _plain(function: str) -> str:
    """The public name of a function of the C library."""
    return re.sub(r"^_+(GI_+|libc_)", "", function) if function.startswith("__") else function


def _system_call(stack: list[tuple[str, str]]) -> str | None:
    """The system call that the process was in, if any: in the kernel, or in the C library's wrapper."""
    for function, where in stack:
        found = re.fullmatch(rf"{_SYSCALL}(\w+)", function)
        if found:
            return f"{found[1]}()"
        if not _kernel(where):
            return _WRAPPERS.get(_plain(function))
    return None


def _own_function(stack: list[tuple[str, str]]) -> str:
    """The system call, or else the innermost function; if that has no name, its nearest caller with a name."""
    user = [function for function, where in stack if not _kernel(where) and where != INLINED]
    named = [function for function in user if function != UNNAMED]
    if _system_call(stack):
        return _system_call(stack)
    if not named:
        return "the kernel itself"
    return f"static, below {_plain(named[0])}()" if user[0] == UNNAMED else f"{_plain(named[0])}()"


def _path(stack: list[tuple[str, str]]) -> list[str]:
    """The stack from PostgresMain inwards, without unnamed functions; it ends with a system call, if any."""
    call = _system_call(stack)
    names = [_WRAPPERS.get(_plain(function), _plain(function)) for function, where in reversed(stack)
             if function != UNNAMED and not _kernel(where) and where != INLINED]
    if ROOT not in names:
        return []
    names = names[names.index(ROOT):]
    return names if call in (None, names[-1]) else names + [call]


def _tree(stacks: list[list[tuple[str, str]]]) -> list[list]:
    """The call tree from PostgresMain, the largest branch first."""
    root: dict = {"count": 0, "calls": {}}
    for path in filter(None, map(_path, stacks)):
        node = root
        node["count"] += 1
        for name in path[1:]:
            node = node["calls"].setdefault(name, {"count": 0, "calls": {}})
            node["count"] += 1
    lines: list[list] = [[0, ROOT, root["count"] / len(stacks)]]

    def walk(node: dict, depth: int) -> None:
        for name, call in sorted(node["calls"].items(), key=lambda one: -one[1]["count"]):
            share = call["count"] / len(stacks)
            if share >= TREE_SHARE_MIN and len(lines) < TREE_LINES_MAX:
                lines.append([depth, name, share])
                walk(call, depth + 1)

    walk(root, 1)
    return lines
