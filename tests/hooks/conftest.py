"""Snapshots made from plain text, and real repositories whose hooks are watched."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from attngate.validators.model import MODE_FILE, FileEntry, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def snapshot_of(files: Mapping[str, str | bytes], changed: set[str] | None = None) -> Snapshot:
    """A snapshot of the given texts, with git's own object ids."""
    blobs: dict[str, bytes] = {}
    entries: dict[bytes, FileEntry] = {}
    for path, text in sorted(files.items()):
        raw = text.encode() if isinstance(text, str) else text
        oid = hashlib.sha1(b"blob %d\0%s" % (len(raw), raw)).hexdigest()
        blobs[oid] = raw
        entries[path.encode()] = FileEntry(MODE_FILE, oid)
    names = None if changed is None else frozenset(p.encode() for p in changed)
    tree = hashlib.sha1("".join(sorted(blobs)).encode()).hexdigest()
    return Snapshot(tree, "texts", entries, blobs.get, names)


@pytest.fixture
def tree() -> Callable[..., Snapshot]:
    return snapshot_of


GOOD = "def ok(x):\n    return x\n"
BAD = "def broken(:\n    return\n"
ATTNGATE = str(Path(sys.executable).parent / "attngate")

# Stands where a hook stands: looks at every byte of the repository before and after the hook.
_WATCHER = """
import hashlib, json, os, subprocess, sys

def look(root):
    seen = {}
    for folder, names, files in os.walk(os.fsencode(root)):
        for name in names + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if os.path.islink(path):
                what = os.readlink(path).hex()
            elif os.path.isfile(path):
                what = hashlib.sha256(open(path, "rb").read()).hexdigest()
            else:
                what = "folder"
            seen[path.hex()] = [status.st_mode, status.st_mtime_ns, what]
    return seen

watched, log, command = sys.argv[1], sys.argv[2], sys.argv[3:]
stdin = sys.stdin.buffer.read() if "pre-push" in command else b""
before = look(watched)
done = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
after = look(watched)
changed = [os.fsdecode(bytes.fromhex(p)) for p in before.keys() | after.keys() if before.get(p) != after.get(p)]
with open(log, "a") as file:
    output = done.stdout.decode("utf-8", "backslashreplace")
    json.dump({"code": done.returncode, "output": output, "changed": changed}, file)
    file.write("\\n")
sys.exit(done.returncode)
"""


class HookRun(NamedTuple):
    """One call of a hook: exit code, what it printed, and which paths of the user's it changed."""

    code: int
    output: str
    changed: list[str]


class Lab:
    """Real git repositories with attngate as their hook, each call watched."""

    def __init__(self, folder: Path, run_folder: str) -> None:
        self.folder = folder
        self.repo = folder / "watched" / "repo"
        self.log = folder / "hooks.log"
        self.home = folder / "home"
        self.home.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": run_folder,
            "GIT_CONFIG_NOSYSTEM": "1",
            "ATTNGATE_TESTING": "1",
        }
        (self.home / ".gitconfig").write_text(
            "[user]\n\tname = Case\n\temail = case@example.invalid\n"
            "[init]\n\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n"
            '[protocol "file"]\n\tallow = always\n'
        )
        (folder / "watcher.py").write_text(_WATCHER)

    def git(
        self,
        *arguments: str,
        cwd: Path | None = None,
        fails: bool | None = False,
        stdin: bytes = b"",
        **variables: str,
    ) -> str:
        """Run git; `fails` says whether it has to (None: either way). Returns its output."""
        done = self.run("git", *arguments, cwd=cwd, stdin=stdin, **variables)
        if fails is not None:
            assert (done.returncode != 0) == fails, f"git {arguments}: {done.stdout}{done.stderr}"
        return os.fsdecode(done.stdout).rstrip("\n")

    def run(
        self, *command: str, cwd: Path | None = None, stdin: bytes = b"", **variables: str
    ) -> subprocess.CompletedProcess[bytes]:
        env = {**self.env, **variables}
        return subprocess.run(
            command, cwd=cwd or self.repo, env=env, input=stdin, capture_output=True, check=False
        )

    def attngate(self, *arguments: str, **options: Any) -> HookRun:
        done = self.run(ATTNGATE, *arguments, **options)
        return HookRun(done.returncode, os.fsdecode(done.stdout + done.stderr), [])

    def new(self, *options: str) -> Path:
        """A repository with one good commit."""
        self.repo.parent.mkdir(exist_ok=True)
        self.git("init", "-q", *options, str(self.repo), cwd=self.folder)
        self.write("base.py", GOOD)
        self.write("README", "hi\n")
        self.commit("base")
        return self.repo

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def commit(self, message: str, *options: str) -> str:
        """Commit everything without hooks; returns the commit."""
        self.git("add", "-A")
        self.git("commit", "-qm", message, "--no-verify", *options)
        return self.git("rev-parse", "HEAD")

    def remote(self, *options: str) -> Path:
        """A bare repository, known as "origin"."""
        path = self.folder / "remote.git"
        self.git("init", "-q", "--bare", *options, str(path), cwd=self.folder)
        self.git("remote", "add", "origin", str(path))
        return path

    def hook(self, *names: str, watched: Path | None = None, cwd: Path | None = None) -> None:
        """Put watched hooks in place."""
        where = self.git("rev-parse", "--git-path", "hooks", cwd=cwd)
        folder = (cwd or self.repo) / where
        folder.mkdir(exist_ok=True)
        watcher = [
            sys.executable,
            "-I",
            "-S",
            self.folder / "watcher.py",
            watched or self.repo.parent,
        ]
        for name in names:
            words = [*watcher, self.log, ATTNGATE, "hook", name]
            line = " ".join(shlex.quote(str(word)) for word in words)
            (folder / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
            (folder / name).chmod(0o755)

    def hook_runs(self) -> list[HookRun]:
        """The calls so far; the log starts anew."""
        if not self.log.exists():
            return []
        lines = self.log.read_text().splitlines()
        self.log.unlink()
        return [HookRun(**json.loads(line)) for line in lines]

    def passed(self) -> HookRun:
        """The hook ran once, said yes and changed nothing."""
        return self._one(0)

    def refused(self) -> HookRun:
        """The hook ran once, said no and changed nothing."""
        return self._one(1)

    def _one(self, code: int) -> HookRun:
        runs = self.hook_runs()
        assert [(run.code, run.changed) for run in runs] == [(code, [])], runs
        return runs[0]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    # A socket's path must be short; pytest's folders are not.
    with tempfile.TemporaryDirectory(prefix="lab") as run_folder:
        yield Lab(tmp_path, run_folder)
