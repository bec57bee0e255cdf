"""The installation that ./demo, ./check and bench/run use: it has pg_herald, and the system's is unchanged."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness import installation, server_user
from harness.cluster import Cluster
from harness.installation import choose_pg_config, find_installation
from harness.prefix import Prefix


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A prefix that is kept, in a folder that the server's user cannot reach if we are root, with pg_herald."""
    folder = tmp_path_factory.mktemp("kept") / "installation"
    prefix = Prefix()
    prefix.keep(folder)
    prefix.install()
    yield folder, prefix
    shutil.rmtree(folder.resolve())


def again(folder: Path, pg_config: str | None = None) -> Prefix:
    prefix = Prefix(pg_config)
    prefix.keep(folder)
    return prefix


def asked(pg_config: str, name: str) -> Path:
    return Path(subprocess.run([pg_config, f"--{name}"], check=True, text=True, stdout=subprocess.PIPE).stdout.strip())


def test_everything_of_ours_is_inside(kept):
    folder, prefix = kept
    assert prefix.pg_config != find_installation().pg_config
    for name in ("bindir", "pkglibdir", "sharedir", "includedir-server"):
        assert asked(prefix.pg_config, name).is_relative_to(folder.resolve())
    ours = [path for path in folder.resolve().rglob("pg_herald*") if "build" not in path.parts]
    assert any(path.suffix == ".so" for path in ours) and any(path.suffix == ".sql" for path in ours)
    assert [path for path in ours if path.is_symlink()] == []


def test_all_programs_are_there(kept):
    """All programs are there: some look for others beside themselves, or for a library relative to their own folder."""
    _, prefix = kept
    theirs = {path.name for path in find_installation().bindir.iterdir()}
    assert {"pg_basebackup", "pgbench", "pg_dump", "pg_rewind"} <= theirs
    assert {path.name for path in asked(prefix.pg_config, "bindir").iterdir()} == theirs
    for program in ("src/test/regress/pg_regress", "src/test/isolation/isolationtester", "src/makefiles/pgxs.mk"):
        assert (asked(prefix.pg_config, "pgxs").parent.parent.parent / program).exists()


def test_server_runs_there(kept):
    _, prefix = kept
    with Cluster(pg_config=prefix.pg_config, preload=True) as cluster:
        cluster.create_herald()
        assert Path(f"/proc/{cluster.postmaster_pid()}/exe").resolve().is_relative_to(prefix.folder)
        backup = server_user.make_folder()
        try:
            cluster.client("pg_basebackup", "--pgdata", str(backup), "--checkpoint=fast")
            assert (backup / "PG_VERSION").exists()
        finally:
            shutil.rmtree(backup)


def test_used_again(kept):
    folder, prefix = kept
    library = asked(prefix.pg_config, "pkglibdir") / "pg_herald.so"
    compiled = {path: path.stat().st_mtime_ns for path in prefix.folder.glob("build/src/**/*.o")}
    assert compiled
    for pg_config in (None, prefix.pg_config):  # also if a user names the prefix itself
        second = again(folder, pg_config)
        assert (second.pg_config, second.install()) == (prefix.pg_config, library)
    assert {path: path.stat().st_mtime_ns for path in compiled} == compiled


def test_another_trees_newer_files(kept):
    """As when two checkouts are copied to the same place: what has been built there is newer than all of ours."""
    _, prefix = kept
    source, note = prefix.folder / "build/src/pg_herald.c", prefix.folder / "installed"
    ours, library = source.read_text(encoding="utf-8"), asked(prefix.pg_config, "pkglibdir") / "pg_herald.so"
    source.write_text(ours + "\nconst char herald_of_another_tree[] = \"of another tree\";\n", encoding="utf-8")
    subprocess.run(["make", "-s", f"PG_CONFIG={prefix.pg_config}", "install"],
                   cwd=prefix.folder / "build", check=True, umask=0o022)
    assert b"of another tree" in library.read_bytes()
    note.unlink()
    prefix.install()
    assert source.read_text(encoding="utf-8") == ours
    assert b"of another tree" not in library.read_bytes()


def test_made_again_for_another_server(kept, tmp_path):
    """As after an upgrade of the system's packages."""
    _, prefix = kept
    folder = tmp_path / "installation"
    first = again(folder)
    (first.folder / "of_the_first").touch()
    assert (again(folder).folder / "of_the_first").exists()
    (folder / "made-of").write_text("another server\n", encoding="ascii")
    second = again(folder)
    assert not (second.folder / "of_the_first").exists() and second.folder != prefix.folder
    shutil.rmtree(second.folder)


def test_chosen(kept, monkeypatch, tmp_path):
    folder, prefix = kept
    system = find_installation().pg_config
    monkeypatch.setattr(installation, "system_pg_config", lambda: system)
    monkeypatch.delenv("PG_CONFIG", raising=False)
    monkeypatch.setattr(installation, "OWN", folder.resolve())
    assert os.path.samefile(choose_pg_config(), prefix.pg_config)
    monkeypatch.setattr(installation, "OWN", tmp_path)
    assert choose_pg_config() == system
    monkeypatch.setattr(installation, "OWN", folder.resolve())
    monkeypatch.setenv("PG_CONFIG", system)
    assert choose_pg_config() == system
