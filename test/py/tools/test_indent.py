"""test/indent: the style of C."""

import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
RIGHT = """\
int
sign(int number)
{
	if (number < 0)
		return -1;
	return number > 0;
}
"""


def indent(*arguments: str | Path) -> tuple[int, str]:
    """Runs it; returns its status and what it prints."""
    result = subprocess.run([TOP / "test/indent", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.returncode, result.stdout


def test_wrong_indentation(tmp_path):
    """Guards: --check finds a line with a wrong indentation, and changes nothing; without it, the file is corrected."""
    file = tmp_path / "file.c"
    wrong = RIGHT.replace("\treturn number", "\t\treturn number")
    file.write_text(wrong, encoding="utf-8")
    status, output = indent("--check", file)
    assert status == 1 and "\n-\t\treturn number > 0;\n+\treturn number > 0;\n" in output
    assert file.read_text(encoding="utf-8") == wrong
    assert indent(file)[0] == 0
    assert file.read_text(encoding="utf-8") == RIGHT
    assert indent("--check", file) == (0, "")


def test_unreadable_code(tmp_path):
    """Guards: if a file cannot be read as C, --check fails, and no file is changed."""
    readable, unreadable = tmp_path / "readable.c", tmp_path / "unreadable.c"
    readable.write_text("int  number;\n", encoding="utf-8")
    unreadable.write_text("int number( {\n", encoding="utf-8")
    for mode in ([], ["--check"]):
        status, output = indent(*mode, readable, unreadable)
        assert status == 1 and "unreadable.c: Error" in output
    assert readable.read_text(encoding="utf-8") == "int  number;\n"
