"""Installs missing Debian packages; does not change installed ones."""

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

from harness.installation import system_program

POLICY = Path("/usr/sbin/policy-rc.d")


class PackagesError(RuntimeError):
    """A package cannot be installed; the message has the reason."""


def present(test: list[str]) -> bool:
    """Whether a command that needs the package succeeds."""
    program = system_program(test[0])
    if not program:
        return False
    return subprocess.run([program, *test[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def install(needs: dict[str, list[str]]) -> None:
    """Installs the packages whose test fails; `needs` is {package: test}.

    Of `first|second` the first that is available is installed.
    """
    missing = [package for package, test in needs.items() if not present(test)]
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise PackagesError(f"this is no Debian system; install by hand: {' '.join(missing)}")
    print("packages: apt-get update", flush=True)
    _as_root("apt-get", "-q=2", "update")
    chosen = [_first_available(package) for package in missing]
    print(f"packages: installing {' '.join(chosen)}", flush=True)
    with _no_services():
        _as_root("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q=2", "install", "-y",
                 "--no-install-recommends", *chosen)
    still = [package for package in missing if not present(needs[package])]
    if still:
        raise PackagesError(f"installed, but of no use: {' '.join(still)}"
                            f" ({'; '.join(' '.join(needs[package]) for package in still)} fails)")


def _first_available(package: str) -> str:
    *others, last = package.split("|")
    return next((name for name in others if present(["apt-cache", "show", name])), last)


def _as_root(*command: str, stdin: str = "") -> None:
    if os.geteuid() != 0:
        if not shutil.which("sudo"):
            raise PackagesError("to install packages this must run as root, or with sudo installed")
        command = ("sudo", *command)
    result = subprocess.run(command, input=stdin, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        raise PackagesError(f"{' '.join(command)} failed:\n{result.stdout[-2000:]}")


@contextmanager
def _no_services():
    """Within, installing a package starts no service, as PgBouncer's would."""
    if POLICY.exists():
        yield
        return
    _as_root("tee", str(POLICY), stdin="#!/bin/sh\nexit 101\n")
    try:
        _as_root("chmod", "755", str(POLICY))
        yield
    finally:
        _as_root("rm", "-f", str(POLICY))
