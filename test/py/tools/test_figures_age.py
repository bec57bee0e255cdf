"""scripts/release refuses figures that are older than src/; ./check lint prints their age."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "figures_age.py"
COMMITTER = ("-c", "user.name=a test", "-c", "user.email=test@example.org")


@pytest.fixture
def tree(tmp_path):
    """A repository with a commit of src/, and the script."""
    for folder in ("test", "src", "docs/performance"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "test")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    commit(tmp_path, "src/a.c")
    return tmp_path


def commit(tree, name):
    """A commit that adds a line to a file; returns it as a run names it."""
    with (tree / name).open("a", encoding="utf-8") as file:
        file.write("a line\n")
    for command in (("add", name), (*COMMITTER, "commit", "--quiet", "-m", name)):
        subprocess.run(["git", "-C", tree, *command], check=True)
    return subprocess.run(["git", "-C", tree, "describe", "--always", "--dirty", "--abbrev=12"], check=True, text=True,
                          capture_output=True).stdout.strip()


def age(tree, **measured):
    """The exit status and the output for pages that were measured at these commits."""
    for name, of in measured.items():
        (tree / f"docs/performance/{name}.md").write_text(f"# A page\n\n| pg_herald | 1.0, commit {of} |\n", encoding="utf-8")
    found = subprocess.run([sys.executable, tree / "test/figures_age.py"], text=True, capture_output=True, check=False)
    assert found.stderr == ""
    return found.returncode, found.stdout


def test_commits_to_src_since_the_figures_are_counted(tree):
    """Only commits that touch src/ make figures old, and one old page is enough."""
    first = commit(tree, "src/a.c")
    commit(tree, "README.md")
    assert age(tree, one=first) == (0, f"figures of {first} (one): 0 commits have touched src/ since\n")
    commit(tree, "src/b.c")
    last = commit(tree, "src/a.c")
    assert age(tree, one=first, two=last, three=last) == (
        1, f"figures of {first} (one): 2 commits have touched src/ since\n"
        f"figures of {last} (three, two): 0 commits have touched src/ since\n")
    assert age(tree, one=last)[0] == 0


@pytest.mark.parametrize("named", ["unknown", "0123456789ab", "--all", "{head}-dirty"])
def test_figures_of_no_known_commit_are_not_young(tree, named):
    """What git does not know, or what had changes that are in no commit, counts as old."""
    head = commit(tree, "src/a.c")
    status, output = age(tree, one=named.format(head=head))
    assert status == 1 and ("the tree had changes" if "dirty" in named else "git does not know") in output


def test_page_without_a_commit_is_old(tree):
    """So are no pages at all."""
    assert age(tree)[0] == 1
    (tree / "docs/performance/one.md").write_text("# A page\n", encoding="utf-8")
    assert age(tree) == (1, "figures of no commit (one): git does not know this commit\n")
