"""What a commit with nothing to say costs: this hook, bare Python, and pre-commit with a hook `true`.

Usage: python benchmarks/hook_latency.py [--rounds 15] [--files 300 5000]

attngate is installed as a wheel into a new environment, as a user has it. Every command is run once a
round, one after the other, so that a busy minute of the machine falls on all of them. The table goes
to stdout and to benchmarks/results/hook_latency.txt.
"""

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "hook_latency.txt"
PRE_COMMIT_CONFIG = """\
repos:
  - repo: local
    hooks:
      - {id: nothing, name: nothing, entry: "true", language: system, pass_filenames: false}
"""
# About 1.9 KB of plain code, the median of a Python file in such plugins.
FUNCTION = "def function_{0}(first, second):\n    return first * {0} + second - {0}\n\n\n"
FILE = "".join(FUNCTION.format(number) for number in range(25))
PYTHON, OURS, THEIRS = "python3 -c pass", "attngate hook pre-commit", "pre-commit run (hook: true)"


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description="Measure what an unchanged pre-commit call costs.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--files", type=int, nargs="+", default=[300, 5000])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attngate-bench-") as folder:
        environment = new_environment(Path(folder) / "environment")
        parts = [about(environment, options.rounds)]
        for files in options.files:
            repository = new_repository(Path(folder) / f"repository-{files}", files)
            parts.append(table(files, measure(repository, environment, options.rounds)))
    text = "\n".join(parts)
    print(text)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text)


def new_environment(folder: Path) -> Path:
    """An environment with attngate installed from a wheel; its folder of programs."""
    source = folder.with_name("source")
    for name in run(["git", "ls-files", "-z"], ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run([*pip, "install", str(source), "pre-commit"], ROOT)
    return folder / "bin"


def new_repository(folder: Path, files: int) -> Path:
    """A packed repository with that many Python files and one staged edit."""
    for number in range(files):
        path = folder / f"package_{number // 50}" / f"module_{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"NUMBER = {number}\n\n\n" + FILE.rstrip("\n") + "\n")
    (folder / ".pre-commit-config.yaml").write_text(PRE_COMMIT_CONFIG)
    run(["git", "init", "-q", "-b", "main"], folder)
    run(["git", "add", "."], folder)
    run(["git", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "Begin"], folder)
    run(["git", "gc", "-q"], folder)
    with (folder / "package_0" / "module_0.py").open("a") as file:
        file.write("\n\nEDITED = True\n")
    run(["git", "add", "."], folder)
    return folder


def measure(repository: Path, programs: Path, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each command in each round, after one round to warm up."""
    commands = {
        PYTHON: [str(programs / "python3"), "-c", "pass"],
        OURS: [str(programs / "attngate"), "hook", "pre-commit"],
        THEIRS: [str(programs / "pre-commit"), "run"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            began = time.perf_counter()
            run(command, repository)
            if number:
                times[name].append((time.perf_counter() - began) * 1000)
    return times


def run(command: list[str], folder: Path) -> str:
    """Run a command that must succeed, with folders and an identity of the benchmark's own."""
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def own_environment() -> dict[str, str]:
    """The environment of every command: no settings of the user's git, a home that is not theirs."""
    home = tempfile.mkdtemp(prefix="attngate-bench-home-")
    foreign = ("GIT_", "ATTNGATE_", "XDG_", "PRE_COMMIT", "SKIP", "CI", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.invalid"}
    names |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in names.items()}
    return {**kept, **names, "HOME": home, "GIT_CONFIG_NOSYSTEM": "1"}


def about(programs: Path, rounds: int) -> str:
    """What was measured and with which versions."""
    lines = [
        "What an unchanged pre-commit call without findings costs, wall-clock milliseconds.",
        f"By benchmarks/hook_latency.py: {rounds} rounds after one to warm up, one staged edit.",
        (
            f"Python {platform.python_version()}, {run(['git', '--version'], ROOT).strip()}, "
            f"{run([str(programs / 'pre-commit'), '--version'], ROOT).strip()}, "
            f"{platform.system()} {platform.machine()}, {len(os.sched_getaffinity(0))} cores."
        ),
        (
            f"{run([str(programs / 'attngate'), '--version'], ROOT).strip()} at "
            f"{run(['git', 'describe', '--always', '--dirty'], ROOT).strip()}."
        ),
    ]
    return "\n".join(lines) + "\n"


def table(files: int, times: dict[str, list[float]]) -> str:
    """The medians of one repository, beside bare Python and beside pre-commit."""
    middle = {name: statistics.median(values) for name, values in times.items()}
    rows = [f"{files} Python files", "  median     min     max   above python   command"]
    rows += [_row(name, times[name], middle) for name in times]
    ratio = middle[OURS] / middle[THEIRS]
    rows.append(f"  {OURS} takes {ratio:.2f} times what {THEIRS} takes.")
    return "\n".join(rows) + "\n"


def _row(name: str, values: Iterable[float], middle: dict[str, float]) -> str:
    figures = (middle[name], min(values), max(values))
    above = middle[name] - middle[PYTHON]
    return "".join(f"{figure:8.1f}" for figure in figures) + f"{above:15.1f}   {name}"


if __name__ == "__main__":
    ENVIRONMENT = own_environment()
    try:
        main()
    finally:
        shutil.rmtree(ENVIRONMENT["HOME"], ignore_errors=True)
