"""`attngate hook NAME`: what git, or pre-commit for it, calls.

Git knows three outcomes of a hook: go on, stop, interrupted. Every other code of the exit table
stops too, and is printed.
"""

from __future__ import annotations

import os
import sys

from attngate.hooks import fast
from attngate.hooks.errors import (
    EXIT_FINDINGS,
    EXIT_INTERRUPTED,
    EXIT_PASS,
    AttngateError,
    RefusedError,
    UsageError,
)
from attngate.hooks.git import Repository

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Mapping

HELP = """What git calls: `hook pre-commit`, `hook pre-push REMOTE URL`, `hook post-commit`.

`attngate install` writes the hook files that call it. ATTNGATE=0 skips every hook, SKIP=attngate or
SKIP=attngate-check (-gate, -submit) one of them; CI=true ignores both.
"""
# The name under which a hook is skipped is the one it has in pre-commit's configuration.
_SKIP_NAMES = {
    "pre-commit": "attngate-check",
    "pre-push": "attngate-gate",
    "post-commit": "attngate-submit",
}
_MEANING = {2: "usage or configuration", 3: "internal error", 4: "could not check, or not ready"}


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the hook's name and what git passes on."""
    parser.add_argument("name", choices=sorted(_SKIP_NAMES))
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="REMOTE URL for pre-push")


def run(args: Namespace) -> int:
    """Run a hook whose arguments were parsed."""
    return run_hook([args.name, *args.arguments])


def run_hook(arguments: list[str]) -> int:
    """Run the hook that git calls by `arguments`; returns 0, 1 or 130.

    Raises:
        UsageError: There is no such hook.
    """
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name in ("-h", "--help"):
        print(HELP)
        return EXIT_PASS
    if name not in _SKIP_NAMES:
        raise UsageError(f"there is no hook {name!r}", f"hooks: {', '.join(_SKIP_NAMES)}")
    # Before anything can fail: git dies of an unread list of refs, without a word.
    stdin = _drain() if name == "pre-push" else b""
    skipped = skip_reason(name, os.environ)
    if skipped:
        print(f"attngate: {name} skipped ({skipped})", file=sys.stderr)
        return EXIT_PASS
    hooks: dict[str, Callable[[], int]] = {
        "pre-commit": _pre_commit,
        "pre-push": lambda: _pre_push(rest, stdin),
        "post-commit": _post_commit,
    }
    return _for_git(name, hooks[name])


def skip_reason(name: str, env: Mapping[str, str]) -> str:
    """Which variable switches a hook off; "" where none does. A CI run is never skipped."""
    if is_ci(env):
        return ""
    if env.get("ATTNGATE") == "0":
        return "ATTNGATE=0"
    asked = {word.strip() for word in env.get("SKIP", "").split(",")}
    for word in ("attngate", _SKIP_NAMES[name]):
        if word in asked:
            return f"SKIP={word}"
    return ""


def is_ci(env: Mapping[str, str]) -> bool:
    """True in a continuous-integration run (`CI=true`)."""
    return env.get("CI", "").lower() not in ("", "0", "false", "no")


def _for_git(name: str, hook: Callable[[], int]) -> int:
    """Run a hook; map its code to what git understands."""
    from attngate.hooks import cli

    try:
        code = hook()
    except AttngateError as error:
        cli.print_error(error)
        code = error.exit_code
    except KeyboardInterrupt:
        raise
    except Exception as error:
        code = cli.crashed(error)
    if code in (EXIT_PASS, EXIT_FINDINGS, EXIT_INTERRUPTED):
        return code
    print(
        f"attngate: {name} refused, exit code {code} ({_MEANING.get(code, '?')})", file=sys.stderr
    )
    return EXIT_FINDINGS


def _pre_commit() -> int:
    with Repository.discover(os.getcwd(), os.environ) as repository:
        state = repository.index_state()
        key = fast.begin(repository, state)
        pause(repository)
        notes = fast.recall(key, repository.user_env)
        if notes is not None:
            if notes:
                print(notes, file=sys.stderr)
            return EXIT_PASS
        from attngate.hooks.commands import check

        code = check.run_hook(repository, repository.user_env)
        if code == EXIT_PASS and repository.index_state() != state:
            raise RefusedError(
                "the index changed while it was being checked",
                "commit again: the check starts anew",
            )
        return code


def _pre_push(arguments: list[str], stdin: bytes) -> int:
    from attngate.hooks.pushes import read_push

    remote, url = (*arguments, "", "")[:2]
    with Repository.discover(os.getcwd(), os.environ) as repository:
        push = read_push(repository, stdin, remote, url)
        pause(repository)
        unnamed = not push.refs and os.environ.get("PRE_COMMIT") == "1"
        if push.is_empty and not unnamed:
            return EXIT_PASS
        from attngate.hooks.commands import gate

        if unnamed:  # `pre-commit run --hook-stage pre-push` without refs: no silent pass
            return gate.judge_head(repository, repository.user_env)
        return gate.run_hook(repository, push, repository.user_env)


def _post_commit() -> int:
    """Hand the new commit over. The commit is made: nothing here can stop it, so nothing fails."""
    from attngate.hooks.commands import submit

    with Repository.discover(os.getcwd(), os.environ) as repository:
        if repository.is_rebase_in_progress():
            return EXIT_PASS  # each replayed commit would queue work; the push judges the result
        try:
            submit.run_hook(repository, repository.user_env)
        except AttngateError as error:
            why = f"{error.message}. {error.advice}" if error.advice else error.message
            print(f"attngate: not submitted: {why}; the push will ask again", file=sys.stderr)
    return EXIT_PASS


def _drain() -> bytes:
    """Everything on stdin; b"" where it is closed or a terminal."""
    try:
        if os.isatty(0):
            return b""
        chunks = []
        while chunk := os.read(0, 1 << 16):
            chunks.append(chunk)
    except OSError:
        return b""
    return b"".join(chunks)


def pause(repository: Repository) -> None:
    """Make a check last longer where a test asks for it (ATTNGATE_TESTING, GATE_TEST_SLEEP)."""
    env = repository.user_env
    seconds = env.get("GATE_TEST_SLEEP", "") if env.get("ATTNGATE_TESTING") == "1" else ""
    if not seconds or float(seconds) <= 0:
        return
    import time

    from attngate.hooks.export import private_folder

    # With a child and a folder of ours alive: what an interruption must not leave behind.
    repository.read_object("0" * len(repository.empty_tree()))
    with private_folder("pause"):
        time.sleep(float(seconds))
