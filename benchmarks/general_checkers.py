"""What pylint, mypy and pyright say of the same bugs, for the comparison in corpus_static.py.

Each tool gets the files that a bug names, in an exported tree, with vLLM's source and the packages of
its own environment on the path. It is given every advantage: a message counts as a hit for whatever
reason it stands at the place, as long as it is gone in the repaired tree.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_MYPY = re.compile(r"^(?P<path>[^:]+):(?P<line>\d+):(?:\d+:)? error: (?P<message>.*)$")


class Checkers:
    """Runs the tools of one environment.

    Args:
        environment: Folder of a virtual environment with pylint, mypy and pyright.
        folder: Scratch folder; mypy keeps one cache a release there.
    """

    names = ("pylint", "mypy", "pyright")

    def __init__(self, environment: Path, folder: Path) -> None:
        self._bin = environment / "bin"
        self._folder = folder
        self.seconds = dict.fromkeys(self.names, 0.0)

    def run(self, name: str, tree: Path, files: list[str], source: Path) -> list[dict[str, Any]]:
        """Messages of one tool about files of a tree, in the shape of our findings."""
        present = [f for f in files if (tree / f).is_file()]
        if not present:
            return []
        began = time.monotonic()
        found = getattr(self, f"_{name}")(tree, present, source)
        self.seconds[name] += time.monotonic() - began
        return [f for f in found if f["path"] in present]

    def _call(self, argv: list[str], tree: Path, **env: str) -> str:
        environment = dict(os.environ, PATH=f"{self._bin}:{os.environ['PATH']}", **env)
        done = subprocess.run(
            argv, cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout

    def _pylint(self, tree: Path, files: list[str], source: Path) -> list[dict[str, Any]]:
        path = f"{tree}{os.pathsep}{source}"
        argv = ["pylint", "--errors-only", "--output-format=json", "--rcfile=/dev/null", *files]
        text = self._call([str(self._bin / argv[0]), *argv[1:]], tree, PYTHONPATH=path)
        return [
            _finding(m["message-id"], m["path"], m["line"], m["message"])
            for m in json.loads(text or "[]")
        ]

    def _mypy(self, tree: Path, files: list[str], source: Path) -> list[dict[str, Any]]:
        config = self._folder / "mypy.ini"
        config.write_text(
            "[mypy]\nignore_missing_imports = true\ncheck_untyped_defs = true\nfollow_imports = silent\n"
        )
        cache = self._folder / f"mypy-{source.name}"
        argv = ["--config-file", str(config), "--cache-dir", str(cache), "--no-error-summary"]
        text = self._call([str(self._bin / "mypy"), *argv, *files], tree, MYPYPATH=str(source))
        matches = filter(None, map(_MYPY.match, text.splitlines()))
        return [_finding("mypy", m["path"], int(m["line"]), m["message"]) for m in matches]

    def _pyright(self, tree: Path, files: list[str], source: Path) -> list[dict[str, Any]]:
        config = {"include": files, "extraPaths": [str(source)], "reportMissingImports": "error"}
        (tree / "pyrightconfig.json").write_text(json.dumps(config))
        text = self._call([str(self._bin / "pyright"), "--outputjson"], tree)
        data = json.loads(text or "{}")
        return [
            _finding(
                d.get("rule", "pyright"),
                os.path.relpath(d["file"], tree),
                d["range"]["start"]["line"] + 1,
                d["message"],
            )
            for d in data.get("generalDiagnostics", ())
            if d["severity"] == "error"
        ]


def _finding(code: str, path: str, line: int, message: str) -> dict[str, Any]:
    return {"code": code, "path": path, "line": line, "symbol": "", "message": message}


def export(repo: Path, rev: str, folder: Path) -> Path:
    """A revision's files in a folder of their own."""
    target = folder / rev
    if not target.is_dir():
        target.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "archive", rev, "vllm_metax"], cwd=repo, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(target)], input=archive.stdout, check=True)
    return target


def remove(folder: Path) -> None:
    """Delete an exported tree."""
    shutil.rmtree(folder, ignore_errors=True)
