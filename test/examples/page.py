"""Follows a page of docs/resume/ literally: runs its commands, in order, in a shell at the top of a tree."""

import re
import shutil
import subprocess
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from harness.ports import LOOPBACK, free_port
from harness.prefix import TOP
from harness.tcp_cluster import TcpCluster
from trial import EXAMPLES, Consumer, TrialError

DATABASE = "shop"
COMMAND_TIMEOUT_S = 300
URL_LINE = re.compile(r"^export JDBC_URL=.*….*$")  # where readers insert their own password
URL = f'export JDBC_URL="jdbc:postgresql://$PGHOST:$PGPORT/{DATABASE}?user=$PGUSER&password=$PGPASSWORD"'
PORT = "8000"  # of the page for a browser; replaced, since another program may use it here


def commands(name: str) -> tuple[list[str], list[str]]:
    """The page's commands for the first terminal, and for the other one, by line."""
    text = (TOP / f"docs/resume/{name}.md").read_text(encoding="utf-8")
    first, other = (block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    return first, other


def follow(cluster: TcpCluster, name: str, folder: Path, environment: dict[str, str], *, jars: Path | None = None) -> None:
    """Runs the page's commands in an empty folder with the examples and the client packages; TrialError if the order gets no
    bill, or is not pushed. The environment is that of a trial's program; `jars` is the folder with the page's downloads."""
    shutil.copytree(EXAMPLES, folder / "examples")
    shutil.copytree(TOP / "clients", folder / "clients", ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
    for jar in jars.glob("*.jar") if jars else ():
        shutil.copy(jar, folder)
    port = str(free_port())
    programs = cluster.installation.bindir
    environment = environment | {"PATH": f"{programs}:{environment['PATH']}", "PGDATABASE": "postgres"}
    first, other = commands(name)
    first = [URL_LINE.sub(URL, line.replace(PORT, port)) for line in first]

    def shell(*lines: str) -> str:
        done = subprocess.run(["bash", "-euc", "\n".join(lines)], cwd=folder, env=environment, check=False, text=True,
                              timeout=COMMAND_TIMEOUT_S, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise TrialError(f"{name}.md: {lines} ended with {done.returncode}:\n{done.stdout[-2000:]}")
        return done.stdout

    def is_seen() -> bool:
        return re.search("^ +1$", shell(*look), re.MULTILINE) if look else pushed(int(port)) == b'data: ["1"]\n'

    *prepare, run = first
    exports = [line for line in prepare if line.startswith("export ")]  # needed again: on the page it is one terminal
    order, *look = other
    try:
        shell(*prepare)
        with Consumer(["bash", "-c", "\n".join([*exports, run])], environment, folder / "log") as consumer:
            shell(order)
            consumer.until(is_seen, f"what {name}.md promises", COMMAND_TIMEOUT_S)  # Go's command compiles first
    finally:
        shell(f"dropdb --if-exists --force {DATABASE}")


def pushed(port: int) -> bytes:
    """The data of the first event that a browser receives; nothing if the page's server does not answer yet."""
    try:
        with urlopen(f"http://{LOOPBACK}:{port}/events", timeout=COMMAND_TIMEOUT_S) as answer:
            return next(line for line in answer if line.startswith(b"data:"))
    except URLError:
        return b""
