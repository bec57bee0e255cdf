"""The user that private servers run as: their programs refuse root, so root starts them as another user."""

import os
import pwd
import subprocess
import tempfile
from pathlib import Path

from harness.installation import InstallationError

NAMES = ("postgres", "nobody")  # of the other user: the first that exists
# Where their folders are: accessible to every user, and on disk unless ./check says otherwise (test/check/lanes.py).
TEMPORARY_FOLDER = os.environ.get("CHECK_TMPDIR", "/var/tmp")


def _user() -> pwd.struct_passwd | None:
    """The other user if we are root; None: the current user."""
    if os.geteuid() != 0:
        return None
    for name in NAMES:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise InstallationError(f"root must become another user to run a server: none of {NAMES} exists")


def identity() -> dict[str, object]:
    """The arguments for subprocess to start a program as that user."""
    user = _user()
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}


def give(path: Path) -> None:
    """Makes that user the owner of a file or folder."""
    user = _user()
    if user:
        os.chown(path, user.pw_uid, user.pw_gid)


def make_folder() -> Path:
    """A new folder of that user, which no other user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="herald-", dir=TEMPORARY_FOLDER))
    give(folder)
    return folder


def may(access: str, path: Path) -> bool:
    """Whether that user may read ("-r"), write ("-w") or enter ("-x") the path."""
    return subprocess.run(["test", access, str(path)], cwd="/", check=False, **identity()).returncode == 0


def make_folder_at(wanted: Path) -> Path:
    """A new folder of that user: the wanted one or, if the user cannot reach it, a link there to another folder."""
    wanted.mkdir(parents=True)
    wanted.chmod(0o700)
    give(wanted)
    if may("-w", wanted):
        return wanted
    folder = make_folder()
    wanted.rmdir()
    wanted.symlink_to(folder)
    return folder
