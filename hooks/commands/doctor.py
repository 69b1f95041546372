"""`attngate doctor`: is everything in place that a commit and a push rely on?"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from attngate.gpu_runner import paths, spawn
from attngate.gpu_runner.client import Client, NotRunningError
from attngate.gpu_runner.errors import ProgramMissingError, RunnerError
from attngate.hooks import checks, config, fast, interpreters, targets
from attngate.hooks.commands.install import HOOKS, is_ours, is_pre_commits
from attngate.hooks.errors import EXIT_FINDINGS, EXIT_PASS, AttngateError
from attngate.hooks.export import private_folder
from attngate.hooks.git import Repository
from attngate.hooks.terminal import escape
from attngate.hooks.version import own_version

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from attngate.hooks.config import Loaded

HELP = """Look at hooks, settings, interpreter, daemon and remotes, and say what is missing.

Each row is ok, warn or fail. Exit 0 when none fails, else 1. An installed hook is really run, on an
index of its own; nothing of the user's is changed.
"""
OK, WARN, FAIL = "ok", "warn", "fail"
_ASK_TORCH = (
    "import importlib.util as u; print(*[n for n in ('torch', 'numpy') if not u.find_spec(n)])"
)
_SSH_URL = re.compile(r"^(ssh://|[^/:@]+@[^/:]+:|[A-Za-z0-9.-]+:(?!//|\\))")
_ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was looked at: its name, `OK`, `WARN` or `FAIL`, what was seen, what to do."""

    what: str
    state: str
    seen: str
    advice: str = ""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--format", choices=("json", "text"), default="text")


def run(args: Namespace) -> int:
    """Look and tell; EXIT_PASS unless a row fails."""
    rows = list(examine())
    if args.format == "json":
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        for row in rows:
            print(escape(f"{row.state:<4}  {row.what}: {row.seen}"))
            if row.advice:
                print(escape(f"      -> {row.advice}"))
    return EXIT_FINDINGS if any(row.state == FAIL for row in rows) else EXIT_PASS


def examine() -> Iterator[Row]:
    """Every row, in order."""
    yield Row("attngate", OK, f"{own_version()}, Python {sys.version.split()[0]}")
    yield from _switches()
    try:
        repository = Repository.discover(os.getcwd(), os.environ)
    except AttngateError as error:
        yield Row("repository", FAIL, error.message, error.advice)
    else:
        with repository:
            yield Row("repository", OK, repository.folder)
            yield from _hooks(repository)
            yield from _remotes(repository)
            yield from _settings(repository)
    yield from _runner()
    yield _cache()


def _switches() -> Iterator[Row]:
    for name in ("ATTNGATE", "SKIP"):
        if os.environ.get(name):
            told = f"{name}={os.environ[name]} is set"
            yield Row("switches", WARN, told, f"unset {name} to have the hooks run")


def _hooks(repository: Repository) -> Iterator[Row]:
    scope = repository.config_scope("core.hooksPath")
    if scope:
        yield Row("core.hooksPath", OK, f"{scope[2]} ({scope[0]} configuration)")
    for name in HOOKS:
        yield _hook(repository, name)


def _hook(repository: Repository, name: str) -> Row:
    path = os.path.join(repository.hooks_folder, name)
    install = "run `attngate install`"
    if not os.path.lexists(path):
        # A missing pre-push hook means that pushes are not checked at all.
        state = FAIL if name == "pre-push" else WARN
        return Row(f"hook {name}", state, f"there is none at {path}", install)
    if not os.access(path, os.X_OK):
        return Row(f"hook {name}", FAIL, f"{path} is not executable", f"chmod +x {path}")
    if is_pre_commits(path):
        return Row(
            f"hook {name}", OK, f"pre-commit's; whether it runs attngate is in {_yaml(repository)}"
        )
    if not is_ours(path):
        return Row(f"hook {name}", WARN, f"{path} is not attngate's", install)
    if name != "pre-commit":
        return Row(f"hook {name}", OK, path)
    return _run_hook(repository, path)


def _yaml(repository: Repository) -> str:
    path = os.path.join(repository.folder, ".pre-commit-config.yaml")
    try:
        with open(path, "rb") as file:
            named = sorted(set(re.findall(rb"attngate-\w+", file.read())))
    except OSError:
        return "no .pre-commit-config.yaml"
    ids = ", ".join(name.decode() for name in named) or "none of attngate's hooks"
    return f".pre-commit-config.yaml ({ids})"


def _run_hook(repository: Repository, path: str) -> Row:
    """Run the hook file on a copy of the index, as git would, and see whether it answers."""
    what = "hook pre-commit"
    with private_folder("doctor") as folder:
        index = os.path.join(folder, "index")
        head = repository.head_tree()
        private = {"GIT_INDEX_FILE": index}
        if head:
            repository.run("-c", "core.splitIndex=false", "read-tree", head, extra_env=private)
        env = {k: v for k, v in os.environ.items() if k not in ("ATTNGATE", "SKIP")} | private
        try:
            done = spawn.run([path], cwd=repository.folder, env=env, timeout_s=_ANSWER_S)
        except ProgramMissingError as error:
            return Row(what, FAIL, str(error), "run `attngate install` again")
    if done.timed_out:
        return Row(what, FAIL, f"{path} did not answer within {_ANSWER_S:.0f} s")
    if done.returncode in (0, 1):
        answer = "passes" if done.returncode == 0 else "has findings in"
        return Row(what, OK, f"{path} runs, and {answer} the tree of HEAD")
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["nothing"]
    return Row(what, FAIL, f"{path} ended with {done.returncode}: {said[0]}")


def _remotes(repository: Repository) -> Iterator[Row]:
    """Ssh remotes whose connection may be dropped while a push waits for its verdicts."""
    for remote in repository.library().remotes:
        for url in remote.urls:
            if _SSH_URL.match(url) and not os.path.exists(url):
                yield _ssh(remote.name, url)


def _ssh(name: str, url: str) -> Row:
    what = f"remote {name}"
    host = re.sub(r"^ssh://", "", url).split("/")[0].split(":")[0]
    try:
        done = spawn.run(["ssh", "-G", host], cwd="/", env=dict(os.environ), timeout_s=10)
    except ProgramMissingError:
        return Row(what, WARN, f"{url}: there is no ssh to ask for its settings")
    interval = re.search(rb"^serveraliveinterval (\d+)", done.stdout, re.MULTILINE)
    if interval and int(interval[1]) > 0:
        return Row(what, OK, f"{url}: ServerAliveInterval {int(interval[1])}")
    advice = (
        "set ServerAliveInterval 30 for it in ~/.ssh/config, push with `attngate push`, "
        "or use https, which is sturdier here"
    )
    return Row(what, WARN, f"{url}: a connection that waits for verdicts may be dropped", advice)


def _settings(repository: Repository) -> Iterator[Row]:
    try:
        loaded = config.load(repository.index_snapshot(), os.environ)
    except AttngateError as error:
        yield Row("settings", FAIL, error.message, error.advice)
        return
    told = "[tool.attngate]" if loaded.configured else "no [tool.attngate]; defaults are used"
    yield Row("settings", OK, f"{told}, {len(loaded.settings.targets)} targets")
    yield from (Row("settings", WARN, text) for text in loaded.warnings)
    yield from _targets(repository, loaded)


def _targets(repository: Repository, loaded: Loaded) -> Iterator[Row]:
    known = targets.known_suites()
    for target in loaded.settings.targets:
        if target.suite not in known:
            advice = f"suites: {', '.join(known)}"
            yield Row(f"target {target.name}", FAIL, f"no suite {target.suite!r}", advice)
    yield from _interpreter(repository, loaded)


def _interpreter(repository: Repository, loaded: Loaded) -> Iterator[Row]:
    try:
        path = interpreters.locate(loaded.settings.interpreter, repository.toplevel)
        components = checks.installed_components(path)
        done = spawn.run(
            [path, "-I", "-c", _ASK_TORCH],
            cwd="/",
            env=spawn.worker_environment(os.environ),
            timeout_s=_ANSWER_S,
        )
    except (AttngateError, ProgramMissingError) as error:
        yield Row("interpreter", FAIL, str(error), getattr(error, "advice", ""))
        return
    missing = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode != 0:
        yield Row("interpreter", FAIL, f"{path} ended with {done.returncode}")
    elif missing:
        advice = "set `interpreter` to the Python that runs the plugin, or install it there"
        state = FAIL if loaded.settings.targets else WARN
        yield Row("interpreter", state, f"{path} has no {missing}", advice)
    else:
        yield Row("interpreter", OK, f"{path}, with torch and numpy")
    told = ", ".join(f"{c.component} {c.version or '(no metadata)'}" for c in components.values())
    yield Row("components", OK, told or "none installed: recorded contracts are used")


def _runner() -> Iterator[Row]:
    try:
        yield Row("run folder", OK, str(paths.socket_path()))
        with Client.connect(auto_start=False) as client:
            status = client.status()
            yield Row("daemon", OK, f"process {status.pid}, {len(status.jobs)} jobs")
            yield from (Row("daemon", WARN, text) for text in client.warnings)
    except NotRunningError:
        yield Row("daemon", OK, "not running; it is started when it is needed")
    except RunnerError as error:
        yield Row("daemon", FAIL, error.message, error.advice)
    state = paths.state_location()
    if not _is_writable(str(state)):
        yield Row(
            "evidence", WARN, f"{state} cannot be written: verdicts last as long as the daemon"
        )
    else:
        yield Row("evidence", OK, str(paths.evidence_database()))


def _cache() -> Row:
    folder = fast.cache_folder(os.environ)
    if folder and _is_writable(folder):
        return Row("cache", OK, folder)
    return Row("cache", WARN, f"{folder or 'no cache folder'} cannot be written: slower hooks")


def _is_writable(path: str) -> bool:
    """True where the folder, or the nearest one above it that exists, takes files."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return os.access(path, os.W_OK | os.X_OK)
