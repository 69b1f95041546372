"""`attngate contracts`: what is recorded of the kernel components, and where and when it was seen."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from attngate.hooks.errors import EXIT_PASS, UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from attngate.validators.contracts.schema import Build, Entry, Observation

HELP = "list or show what is recorded of the kernel components"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare `list`, `show NAME` and `--format`."""
    parser.add_argument("action", choices=["list", "show"], help="list the builds, or show one")
    parser.add_argument("name", nargs="?", help="show: a build, a component or an entry point")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="default: text")


def run(args: Namespace) -> int:
    """Print the contracts that were asked for.

    Raises:
        UsageError: `show` without a name, or with one that is not recorded.
    """
    import msgspec

    builds = _builds()
    if args.action == "show":
        builds = _chosen(builds, args.name)
    if args.format == "json":
        data: Any = [msgspec.to_builtins(build) for build in builds]
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(data)).decode() + "\n")
        return EXIT_PASS
    render = as_text if args.action == "show" else as_line
    sys.stdout.write("\n".join(render(build) for build in builds) + "\n")
    return EXIT_PASS


def _builds() -> list[Build]:
    from attngate.validators.contracts.load import all_builds

    return all_builds()


def _chosen(builds: list[Build], name: str | None) -> list[Build]:
    known = [build.id for build in builds]
    if not name:
        raise UsageError("no contract was named", f"Name one of: {', '.join(known)}.")
    found = [b for b in builds if name in (b.id, b.component) or b.entry(name.rpartition(".")[2])]
    if not found:
        raise UsageError(f"there is no contract {name}", f"Recorded are: {', '.join(known)}.")
    return found


def as_line(build: Build) -> str:
    """A build on one line."""
    entries = ", ".join(entry.name for entry in build.entries)
    return f"{build.id:14} {build.component:16} {build.title}: {entries}"


def as_text(build: Build) -> str:
    """A build with its entry points and observations, as a user reads it on a terminal."""
    lines = [
        f"{build.id}: {build.title}",
        f"  component     {build.component} ({', '.join(build.distributions)})",
        f"  generation    {build.since} up to, not including, {build.before}{_local(build)}",
    ]
    for entry in build.entries:
        lines += ["", *_entry_lines(entry)]
    lines += ["", "  observations"]
    for seen in build.observations:
        lines += _observation_lines(seen)
    return "\n".join(lines) + "\n"


def _local(build: Build) -> str:
    return f", local versions that begin with {build.local}" if build.local else ""


def _entry_lines(entry: Entry) -> list[str]:
    lines = [f"  {entry.paths[0]}", f"    parameters  {entry.signature}"]
    lines += [f"    refuses     {name}: {advice}" for name, advice in entry.rejected.items()]
    lines += [f"    not in list {name}: {advice}" for name, advice in entry.unlisted.items()]
    lines += [f"    unrecorded  {name}" for name in entry.unrecorded]
    for row in entry.returns:
        options = ", ".join(f"{n}={v}" for n, v in row.when.items()) or "otherwise"
        lines.append(f"    returns     {', '.join(row.values)} ({options})")
    lines += [f"    refuses     {c.id}: {c.message}" for c in entry.constraints]
    if entry.lse is not None:
        lse = entry.lse
        lines.append(
            f"    lse         {lse.layout} {lse.dtype}, base {lse.base}, empty row {lse.empty}"
        )
    return lines


def _observation_lines(seen: Observation) -> list[str]:
    device = f"on {seen.device}" if seen.device != "none" else "source only"
    where = f"{', '.join(seen.builds)}, {device}"
    return [
        f"    {seen.id} ({seen.level.value}, {seen.date}, {where})",
        f"      {seen.statement}",
        f"      Source: {seen.source}.",
    ]
