"""Whom private servers run as: their programs refuse root, so root becomes another user for them."""

import os
import pwd
import subprocess
import tempfile
from pathlib import Path

from harness.installation import InstallationError

NAMES = ("postgres", "nobody")  # whom root becomes: the first that exists
TEMPORARY_FOLDER = "/var/tmp"  # on disk, and every user can reach it


def _user() -> pwd.struct_passwd | None:
    """The user to become; None: stay oneself."""
    if os.geteuid() != 0:
        return None
    for name in NAMES:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise InstallationError(f"root must become another user to run a server: none of {NAMES} exists")


def identity() -> dict[str, object]:
    """The arguments with which subprocess starts a program as that user."""
    user = _user()
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}


def give(path: Path) -> None:
    """Makes a file or a folder that user's own."""
    user = _user()
    if user:
        os.chown(path, user.pw_uid, user.pw_gid)


def make_folder() -> Path:
    """A new folder of that user's, closed to all others."""
    folder = Path(tempfile.mkdtemp(prefix="herald-", dir=TEMPORARY_FOLDER))
    give(folder)
    return folder


def may(access: str, path: Path) -> bool:
    """Whether that user may read ("-r"), write ("-w") or enter ("-x") what is at the path."""
    return subprocess.run(["test", access, str(path)], cwd="/", check=False, **identity()).returncode == 0


def make_folder_at(wanted: Path) -> Path:
    """A new folder of that user's: the wanted one, or a link there to one that the user can reach."""
    wanted.mkdir(parents=True)
    wanted.chmod(0o700)
    give(wanted)
    if may("-w", wanted):
        return wanted
    folder = make_folder()
    wanted.rmdir()
    wanted.symlink_to(folder)
    return folder
