"""The `attngate` command: finds the verb's module, runs it, and turns every outcome into an exit code.

A verb is a file in `commands/` with `HELP`, `add_arguments(parser)` and `run(args) -> int`. Nothing
is imported before the verb is known, because a hook runs on every commit.
"""

from __future__ import annotations

import os
import sys

from attngate.hooks import streams
from attngate.hooks.errors import (
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_PASS,
    AttngateError,
    UsageError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from types import FrameType, ModuleType
    from typing import NoReturn

PACKAGE = "attngate.hooks.commands"


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command line and leave the process with the code of the exit table.

    Args:
        argv: Arguments without the program's name; None takes them from the process.
    """
    streams.install()
    code = guarded(sys.argv[1:] if argv is None else argv)
    sys.stdout.flush()
    sys.stderr.flush()
    raise SystemExit(code)


def guarded(arguments: list[str]) -> int:
    """Run a command line; an error becomes a message and its code, a bug becomes a crash log."""
    try:
        _end_on_hangup()
        return dispatch(arguments)
    except AttngateError as error:
        print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return _interrupted()
    except SystemExit as leaving:  # argparse
        return leaving.code if isinstance(leaving.code, int) else EXIT_PASS
    except BaseException as error:
        return crashed(error)


def dispatch(arguments: list[str]) -> int:
    """Run the verb that the arguments name.

    Raises:
        UsageError: No such verb.
    """
    verb = arguments[0] if arguments else "--help"
    if verb == "hook":
        # No argument parser on the way of a commit.
        from attngate.hooks.commands import hook

        return hook.run_hook(arguments[1:])
    if verb in ("-h", "--help", "help"):
        return _print_help()
    if verb in ("-V", "--version", "version"):
        return _print_version()
    module, rest = _module_of(verb), arguments[1:]
    if getattr(module, "PASSES_ON", False) and rest[:1] not in (["-h"], ["--help"]):
        rest = ["--", *rest]  # options are another program's
    return int(module.run(_parser(verb, module).parse_args(rest)))


def verbs() -> list[str]:
    """The verbs there are: the modules of the package `commands`."""
    import pkgutil

    from attngate.hooks import commands

    return sorted(m.name for m in pkgutil.iter_modules(commands.__path__) if m.name[0] != "_")


def parser_of(verb: str) -> ArgumentParser:
    """The argument parser of a verb, for the command line, the completion and the docs.

    Raises:
        UsageError: No such verb.
    """
    return _parser(verb, _module_of(verb))


def _module_of(verb: str) -> ModuleType:
    import importlib

    known = verbs()
    if verb in known:
        return importlib.import_module(f"{PACKAGE}.{verb}")
    import difflib

    close = difflib.get_close_matches(verb, known, 1)
    hint = f"did you mean `attngate {close[0]}`?" if close else "`attngate --help` lists the verbs"
    raise UsageError(f"there is no verb {verb!r}", hint)


def _parser(verb: str, module: ModuleType) -> ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog=f"attngate {verb}",
        description=module.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return parser


def _print_help() -> int:
    print("usage: attngate VERB [options]        (attngate VERB --help tells more)\n")
    for verb in verbs():
        summary = str(_module_of(verb).HELP).strip().partition("\n")[0]
        print(f"  {verb:<12} {summary}")
    print("\n  --version    print the version")
    return EXIT_PASS


def _print_version() -> int:
    from importlib.metadata import version

    print(f"attngate {version('attngate')}")
    return EXIT_PASS


def print_error(error: AttngateError) -> None:
    """Write an error and its advice to stderr."""
    print(f"attngate: {error.message}", file=sys.stderr)
    if error.advice:
        print(f"  {error.advice}", file=sys.stderr)


def _end_on_hangup() -> None:
    # TERM and HUP take the same way out as Ctrl-C, so that no child and no exported tree stays.
    import signal

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def _interrupted() -> int:
    print("attngate: interrupted", file=sys.stderr)
    return EXIT_INTERRUPTED


def crashed(error: BaseException) -> int:
    """Write a crash log and name it; the exit code of an internal error."""
    import traceback

    text = "".join(traceback.format_exception(error))
    where = _write_crash_log(text)
    if where:
        print(f"attngate: internal error: {error!r}; details in {where}", file=sys.stderr)
    else:
        print(
            f"attngate: internal error, and no crash log could be written:\n{text}", file=sys.stderr
        )
    return EXIT_INTERNAL


def _write_crash_log(text: str) -> str:
    import tempfile
    import time

    from attngate.hooks.fast import make_folders

    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    stamp = time.strftime("%Y%m%d-%H%M%S-")
    for folder in (os.path.join(state, "attngate"), tempfile.gettempdir()):
        try:
            make_folders(folder)
            descriptor, path = tempfile.mkstemp(".txt", "attngate-crash-" + stamp, folder)
            with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as log:
                log.write(text)
        except OSError:
            continue
        return path
    return ""


if __name__ == "__main__":
    main()
