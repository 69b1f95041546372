"""ruff, ruff format and mypy on an exported tree, where that tree configures them.

Three answers are kept apart: not configured (not run), configured but not runnable (could not check),
and run. The program is the configured interpreter's, else the one on PATH, else the one that came
with attngate; its path and version are part of the answer.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import sys
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attngate.gpu_runner import spawn
from attngate.gpu_runner.errors import ProgramMissingError
from attngate.validators.model import Finding, Level, Location, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from attngate.validators.model import Snapshot

TIMEOUT_S = 600.0
NOT_CONFIGURED = "not configured, not run"
COULD_NOT_RUN = "could not run"
CLEAN = "clean"
FOUND = "findings"

_RUFF_FILES = (b"ruff.toml", b".ruff.toml")
_MYPY_FILES = (b"mypy.ini", b".mypy.ini")
_FORMAT_HOOK = re.compile(rb"^\s*-?\s*id:\s*['\"]?ruff-format\b", re.MULTILINE)
# The head of a file's part in a unified diff, the one output that every ruff version prints alike.
_REFORMAT = re.compile(r"^--- (.+)\n\+\+\+ \1$", re.MULTILINE)
_EXPORTED_SUFFIXES = (
    b".py",
    b".pyi",
    b".ipynb",
    b".toml",
    b".cfg",
    b".ini",
    b"py.typed",
    b".gitignore",
)


@dataclass(frozen=True, slots=True)
class LinterRun:
    """What one linter did.

    Attributes:
        tool: "ruff", "ruff format" or "mypy".
        status: One of `NOT_CONFIGURED`, `COULD_NOT_RUN`, `CLEAN`, `FOUND`.
        program: Path of the program, "" where none was looked for or found.
        version: What the program calls its version.
        findings: What it found, all of severity error.
        message: Why it could not run, "" otherwise.
        configured_by: The file that configures it, "" where none does.
    """

    tool: str
    status: str
    program: str = ""
    version: str = ""
    findings: tuple[Finding, ...] = ()
    message: str = ""
    configured_by: str = ""


@dataclass(frozen=True, slots=True)
class LintRequest:
    """Where and how linters run.

    Attributes:
        snapshot: The tree that was exported; configuration and line texts are read from it.
        folder: The exported tree; linters run in it and see nothing else.
        env: The caller's environment; what could redirect a linter is dropped.
        interpreter: Python whose linters and installed packages are used, "" for none.
        packages: What mypy is given where its configuration names no files.
        cache_folder: A private folder for mypy's cache, "" for no cache.
    """

    snapshot: Snapshot
    folder: str
    env: Mapping[str, str]
    interpreter: str = ""
    packages: tuple[str, ...] = ()
    cache_folder: str = ""


def is_linted(path: bytes) -> bool:
    """True for paths that a linter or its configuration needs in the exported tree."""
    return path.endswith(_EXPORTED_SUFFIXES)


def configured(snapshot: Snapshot) -> dict[str, str]:
    """The linters that the tree configures, each with the file that says so."""
    found: dict[str, str] = {}
    tool = _tool_tables(snapshot)
    ruff = _first_present(snapshot, _RUFF_FILES) or ("pyproject.toml" if "ruff" in tool else "")
    if ruff:
        found["ruff"] = ruff
    formatted = _format_configuration(snapshot, tool)
    if formatted:
        found["ruff format"] = formatted
    mypy = _first_present(snapshot, _MYPY_FILES) or ("pyproject.toml" if "mypy" in tool else "")
    if not mypy and _ini(snapshot, b"setup.cfg").has_section("mypy"):
        mypy = "setup.cfg"
    if mypy:
        found["mypy"] = mypy
    return found


def run_linters(request: LintRequest, only: Iterable[str] | None = None) -> list[LinterRun]:
    """Run what the tree configures.

    Args:
        request: Where and how.
        only: Names of linters to run; the others are left out of the answer. None for all three.

    Returns:
        One answer for each linter, in a fixed order.
    """
    found = configured(request.snapshot)
    wanted = [tool for tool in _RUNNERS if only is None or tool in only]
    return [
        _run_one(request, tool, found[tool]) if tool in found else LinterRun(tool, NOT_CONFIGURED)
        for tool in wanted
    ]


def programs(env: Mapping[str, str], interpreter: str, names: Iterable[str]) -> list[str]:
    """Paths of the programs that would be run; what a cached answer depends on."""
    return [path for name in names if (path := find_program(name.split()[0], env, interpreter))]


def find_program(name: str, env: Mapping[str, str], interpreter: str) -> str:
    """The interpreter's program, else the one on PATH, else ours; "" where there is none."""
    folders = [os.path.dirname(interpreter)] if interpreter else []
    candidates = [os.path.join(folder, name) for folder in folders]
    candidates.append(shutil.which(name, path=env.get("PATH", os.defpath)) or "")
    candidates.append(os.path.join(os.path.dirname(sys.executable), name))
    return next((c for c in candidates if c and os.access(c, os.X_OK) and os.path.isfile(c)), "")


def _run_one(request: LintRequest, tool: str, configured_by: str) -> LinterRun:
    name = tool.split(maxsplit=1)[0]
    program = find_program(name, request.env, request.interpreter)
    if not program:
        why = f"{configured_by} configures {tool}, but no {name} was found"
        return LinterRun(tool, COULD_NOT_RUN, message=why, configured_by=configured_by)
    try:
        version = _version(request, program)
        status, findings, message = _RUNNERS[tool](request, program)
    except ProgramMissingError as error:
        return LinterRun(
            tool, COULD_NOT_RUN, program, message=str(error), configured_by=configured_by
        )
    return LinterRun(tool, status, program, version, tuple(findings), message, configured_by)


Answer = tuple[str, list[Finding], str]


def _ruff_check(request: LintRequest, program: str) -> Answer:
    arguments = [
        "check",
        "--no-cache",
        "--no-fix",
        "--force-exclude",
        "--output-format",
        "json",
        ".",
    ]
    done = _run(request, [program, *arguments])
    if done.timed_out or done.returncode not in (0, 1):
        return COULD_NOT_RUN, [], _complaint(done)
    try:
        rows = json.loads(done.stdout or b"[]")
        findings = [_from_ruff(request, row) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        return COULD_NOT_RUN, [], f"its JSON output could not be read: {error!r}"
    return FOUND if findings else CLEAN, findings, ""


def _ruff_format(request: LintRequest, program: str) -> Answer:
    done = _run(request, [program, "format", "--diff", "--no-cache", "--force-exclude", "."])
    if done.timed_out or done.returncode not in (0, 1):
        return COULD_NOT_RUN, [], _complaint(done)
    names = _REFORMAT.findall(done.stdout.decode("utf-8", "surrogateescape"))
    if done.returncode == 1 and not names:
        return COULD_NOT_RUN, [], _complaint(done)
    findings = [
        Finding(
            code="format",
            name="ruff format",
            severity=Severity.ERROR,
            location=Location(name, 1),
            message="the file is not formatted as the tree's configuration asks",
            advice=f"run: ruff format {name}",
            origin="ruff format --diff",
        )
        for name in names
    ]
    return FOUND if findings else CLEAN, findings, ""


def _mypy(request: LintRequest, program: str) -> Answer:
    arguments = ["--output", "json", "--no-error-summary", "--cache-dir"]
    arguments.append(request.cache_folder or os.devnull)
    if request.interpreter:
        arguments += ["--python-executable", request.interpreter]
    done = _run(request, [program, *arguments, *_mypy_files(request)])
    if done.timed_out or done.returncode not in (0, 1):
        return COULD_NOT_RUN, [], _mypy_complaint(done)
    try:
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
        findings = [_from_mypy(request, row) for row in rows if row["severity"] == "error"]
    except (ValueError, KeyError, TypeError) as error:
        return COULD_NOT_RUN, [], f"its JSON output could not be read: {error!r}"
    if done.returncode == 1 and not findings:
        return COULD_NOT_RUN, [], _complaint(done)
    return FOUND if findings else CLEAN, findings, ""


_RUNNERS: dict[str, Callable[[LintRequest, str], Answer]] = {
    "ruff": _ruff_check,
    "ruff format": _ruff_format,
    "mypy": _mypy,
}


def _mypy_files(request: LintRequest) -> list[str]:
    """What mypy is asked about: nothing where its configuration names it, else the packages."""
    table = _tool_tables(request.snapshot).get("mypy", {})
    keys = set(table) if isinstance(table, dict) else set()
    for name in (*_MYPY_FILES, b"setup.cfg"):
        parser = _ini(request.snapshot, name)
        if parser.has_section("mypy"):
            keys |= set(parser.options("mypy"))
    if keys & {"files", "packages", "modules"}:
        return []
    present = [p for p in request.packages if os.path.isdir(os.path.join(request.folder, p))]
    return ["--", *present] if present else ["--", "."]


def _from_ruff(request: LintRequest, row: dict[str, Any]) -> Finding:
    path = os.path.relpath(row["filename"], os.path.realpath(request.folder))
    line = row["location"]["row"]
    code = row["code"] or "syntax"
    return Finding(
        code=code,
        name="ruff",
        severity=Severity.ERROR,
        location=Location(path, line, row["location"]["column"], row["end_location"]["row"]),
        message=row["message"],
        advice=f"ruff rule {code}",
        origin="ruff check",
        line_text=_line(request.snapshot, path, line),
    )


def _from_mypy(request: LintRequest, row: dict[str, Any]) -> Finding:
    line = max(row["line"], 1)
    return Finding(
        code=row["code"] or "mypy",
        name="mypy",
        severity=Severity.ERROR,
        location=Location(row["file"], line, max(row["column"], 0) + 1),
        message=row["message"],
        advice=row.get("hint") or "",
        origin="mypy",
        level=Level.SOURCE_INSPECTED,
        line_text=_line(request.snapshot, row["file"], line),
    )


def _line(snapshot: Snapshot, path: str, number: int) -> str:
    raw = snapshot.blob(os.fsencode(path)) or b""
    lines = raw.splitlines()
    text = lines[number - 1] if 0 < number <= len(lines) else b""
    return text.decode("utf-8", "replace").strip()


def _version(request: LintRequest, program: str) -> str:
    done = _run(request, [program, "--version"])
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""


def _run(request: LintRequest, argv: list[str]) -> spawn.Completed:
    return spawn.run(argv, cwd=request.folder, env=_clean(request.env), timeout_s=TIMEOUT_S)


def _clean(env: Mapping[str, str]) -> dict[str, str]:
    """Without what would point a linter at other sources, settings or repositories."""
    dropped = ("GIT_", "PYTHON", "RUFF_", "MYPY", "VIRTUAL_ENV")
    return {name: value for name, value in env.items() if not name.startswith(dropped)}


def _complaint(done: spawn.Completed) -> str:
    if done.timed_out:
        return f"it had not finished after {TIMEOUT_S:.0f} s"
    text = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
    last = " / ".join(text.splitlines()[-3:]) or "it printed nothing"
    return f"exit status {done.returncode}: {last}"


def _mypy_complaint(done: spawn.Completed) -> str:
    """Why mypy gave up: with JSON output it says so in a row of its own."""
    try:
        rows = [json.loads(line) for line in (done.stdout or done.stderr).splitlines()]
        return " / ".join(f"{row['file']}: {row['message']}" for row in rows) or _complaint(done)
    except (ValueError, KeyError, TypeError):
        return _complaint(done)


def _tool_tables(snapshot: Snapshot) -> dict[str, Any]:
    raw = snapshot.blob(b"pyproject.toml")
    if raw is None:
        return {}
    try:
        tool = tomllib.loads(raw.decode()).get("tool", {})
    except ValueError:
        return {}
    return tool if isinstance(tool, dict) else {}


def _format_configuration(snapshot: Snapshot, tool: dict[str, Any]) -> str:
    """The file that asks for ruff's formatter; a project may well use ruff's rules alone."""
    ruff = tool.get("ruff")
    if isinstance(ruff, dict) and "format" in ruff:
        return "pyproject.toml"
    for name in _RUFF_FILES:
        raw = snapshot.blob(name)
        if raw is not None and re.search(rb"^\s*\[format[.\]]", raw, re.MULTILINE):
            return name.decode()
    hooks = snapshot.blob(b".pre-commit-config.yaml")
    return ".pre-commit-config.yaml" if hooks is not None and _FORMAT_HOOK.search(hooks) else ""


def _first_present(snapshot: Snapshot, names: Iterable[bytes]) -> str:
    return next((name.decode() for name in names if snapshot.blob(name) is not None), "")


def _ini(snapshot: Snapshot, name: bytes) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    raw = snapshot.blob(name)
    if raw is not None:
        try:
            parser.read_string(raw.decode("utf-8", "replace"))
        except configparser.Error:
            return configparser.ConfigParser()
    return parser
