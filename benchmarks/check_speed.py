"""The static check with drift against vLLM, beside mypy on the same plugin: cold, and with one file changed.

    python benchmarks/check_speed.py --repo GIT_DIR --rev REV --upstream DIR --venv VENV --change FILE

VENV has mypy, what mypy's configuration asks for, and the packages that vLLM imports; DIR holds the
package `vllm`. The plugin is checked without the linters that it configures itself. Runs alternate, so
that what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_LINTERS = re.compile(r"^\[tool\.(mypy|ruff)[^\n]*\n(?:(?!\[).*\n)*", re.MULTILINE)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("repo", "rev", "upstream", "venv", "change"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--profile", default="vllm-metax")
    parser.add_argument("--package", default="vllm_metax")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), args)
        cold = [bench.cold() for _ in range(2)]
        warm = [bench.warm(number) for number in range(args.rounds)]
    _print("cold", cold)
    _print("one file changed", warm)
    return 0


class Bench:
    """One plugin in two folders: as it is for mypy, without linters for attngate."""

    def __init__(self, folder: Path, args: argparse.Namespace) -> None:
        self._args = args
        self._ours, self._theirs = folder / "ours", folder / "theirs"
        self._cache, self._memory = folder / "mypy", folder / "memory"
        for place in (self._ours, self._theirs):
            self._git(folder, "clone", "-q", "--shared", "--no-checkout", args.repo, str(place))
            self._git(place, "checkout", "-q", args.rev)
        settings = self._ours / "pyproject.toml"
        settings.write_text(_LINTERS.sub("", settings.read_text()))
        (self._ours / ".pre-commit-config.yaml").unlink(missing_ok=True)
        self._git(self._ours, "add", "-A")
        self._git(self._ours, "commit", "-q", "--no-verify", "-m", "without linters")

    def cold(self) -> tuple[float, float]:
        """Seconds of mypy and of attngate, each with nothing remembered."""
        for folder in (self._cache, self._memory):
            shutil.rmtree(folder, ignore_errors=True)
        return self._mypy(), self._attngate()

    def warm(self, number: int) -> tuple[float, float]:
        """Seconds of both after a statement was added to a function of one file."""
        for place in (self._ours, self._theirs):
            path = place / self._args.change
            text = re.sub(r"^ +_measured = \d+\n", "", path.read_text(), flags=re.MULTILINE)
            where = [*re.finditer(r"^    def \w+\([^)]*\)[^:]*:\n", text, re.MULTILINE)][-1].end()
            path.write_text(f"{text[:where]}        _measured = {number}\n{text[where:]}")
            self._git(place, "add", "-A")
        return self._mypy(), self._attngate()

    def _mypy(self) -> float:
        argv = [str(Path(self._args.venv) / "bin" / "mypy"), "--cache-dir", str(self._cache)]
        env = dict(os.environ, MYPYPATH=self._args.upstream)
        return _seconds([*argv, self._args.package], self._theirs, env)

    def _attngate(self) -> float:
        env = dict(
            os.environ,
            ATTNGATE_UPSTREAM=self._args.upstream,
            ATTNGATE_PROFILE=self._args.profile,
            XDG_CACHE_HOME=str(self._memory),
        )
        argv = [str(Path(sys.executable).parent / "attngate"), "check", "--staged"]
        return _seconds(argv, self._ours, env)

    @staticmethod
    def _git(folder: Path, *arguments: str) -> None:
        identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.invalid"]
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)


def _seconds(argv: list[str], folder: Path, env: dict[str, str]) -> float:
    began = time.monotonic()
    subprocess.run(argv, cwd=folder, env=env, capture_output=True, check=False)
    return time.monotonic() - began


def _print(what: str, pairs: list[tuple[float, float]]) -> None:
    theirs, ours = (median(column) for column in zip(*pairs, strict=True))
    ratios = ", ".join(f"{a / b:.1f}" for a, b in pairs)
    print(
        f"{what:18} mypy {theirs:6.2f} s, attngate {ours:6.2f} s, ratio {theirs / ours:.1f} ({ratios})"
    )


if __name__ == "__main__":
    sys.exit(main())
