"""`attngate contracts`: what is recorded of the kernel components, and where and when it was seen."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from attngate.hooks.errors import EXIT_PASS, UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from attngate.validators.contracts.schema import Build, Entry, Observation, Wanted

HELP = "list, show or compare what is recorded of the kernel components"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the actions, what they are about, and `--format`."""
    parser.add_argument(
        "action",
        choices=["list", "show", "diff"],
        help="list the builds, show one, or tell what differs between two",
    )
    parser.add_argument(
        "names", nargs="*", help="show: a build, a component or an entry point; diff: two builds"
    )
    parser.add_argument("--format", choices=["text", "json"], default="text", help="default: text")


def run(args: Namespace) -> int:
    """Print the contracts that were asked for.

    Raises:
        UsageError: `show` without a name, or with one that is not recorded.
    """
    import msgspec

    builds = _builds()
    if args.action == "diff":
        return _print_difference(builds, args)
    if args.action == "show":
        builds = _chosen(builds, args.names)
    elif args.names:
        raise UsageError("`contracts list` takes no name", "`contracts show NAME` shows one")
    if args.format == "json":
        data: Any = [msgspec.to_builtins(build) for build in builds]
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(data)).decode() + "\n")
        return EXIT_PASS
    render = as_text if args.action == "show" else as_line
    sys.stdout.write("\n".join(render(build) for build in builds) + "\n")
    return EXIT_PASS


def _print_difference(builds: list[Build], args: Namespace) -> int:
    """Print what a call has to change between two builds; both are named by their ids."""
    import msgspec

    from attngate.validators.contracts.difference import differences

    known = {build.id: build for build in builds}
    unknown = [name for name in args.names if name not in known]
    if len(args.names) != 2 or unknown:
        what = (
            f"there is no build {unknown[0]}" if unknown else "a difference is between two builds"
        )
        raise UsageError(what, f"Name two of: {', '.join(known)}.")
    found = differences(known[args.names[0]], known[args.names[1]])
    if args.format == "json":
        data = {"from": args.names[0], "to": args.names[1], "differences": found}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(data)).decode() + "\n")
        return EXIT_PASS
    lines = [f"{args.names[0]} -> {args.names[1]}"]
    for entry in dict.fromkeys(d.entry for d in found):
        lines.append(f"  {entry}")
        lines += [f"    {d.what:10} {d.text}" for d in found if d.entry == entry]
    sys.stdout.write("\n".join(lines if found else [*lines, "  nothing differs"]) + "\n")
    return EXIT_PASS


def _builds() -> list[Build]:
    from attngate.validators.contracts.load import shown_builds

    return shown_builds()


def _chosen(builds: list[Build], names: list[str]) -> list[Build]:
    known = [build.id for build in builds]
    if len(names) != 1:
        what = "no contract was named" if not names else "more than one contract was named"
        raise UsageError(what, f"Name one of: {', '.join(known)}.")
    name = names[0]
    found = [b for b in builds if name in (b.id, b.component) or b.entry(name.rpartition(".")[2])]
    if not found:
        raise UsageError(f"there is no contract {name}", f"Recorded are: {', '.join(known)}.")
    return found


def as_line(build: Build) -> str:
    """A build on one line."""
    functions = [entry.name for entry in build.entries if not entry.owner]
    classes = dict.fromkeys(e.owner.partition(".")[0] for e in build.entries if e.owner)
    listed = ", ".join(dict.fromkeys([*functions, *classes]))
    return f"{build.id:20} {build.component:16} {build.title}: {listed}"


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
    if not build.local:
        return ""
    since = f" from {build.local_since} on" if build.local_since else ""
    before = f" before {build.local_before}" if build.local_before else ""
    return f", local versions that begin with {build.local}{since}{before}"


def _entry_lines(entry: Entry) -> list[str]:
    lines = [f"  {entry.paths[0]}", f"    parameters  {entry.signature}"]
    lines += [f"    refuses     {name}: {advice}" for name, advice in entry.rejected.items()]
    lines += [f"    not in list {name}: {advice}" for name, advice in entry.unlisted.items()]
    lines += [f"    unrecorded  {name}" for name in entry.unrecorded]
    for row in entry.returns:
        options = ", ".join(f"{n}={v}" for n, v in row.when.items()) or "otherwise"
        lines.append(f"    returns     {', '.join(row.values)} ({options})")
    lines += [f"    object      {name}: {what}" for name, what in entry.objects.items()]
    lines += [f"    refuses     {c.id}: {c.message}" for c in entry.constraints]
    lines += [f"    writes to   {name}" for name in entry.in_place]
    lines += [f"    layout      {name}: {layout}" for name, layout in entry.layouts.items()]
    lines += [f"    unit        {name}: {unit}" for name, unit in entry.units.items()]
    lines += [f"    takes lse   {name}: {_wanted(wanted)}" for name, wanted in entry.wants.items()]
    if entry.lse is not None:
        lse = entry.lse
        lines.append(
            f"    lse         {lse.layout} {lse.dtype}, base {lse.base}, empty row {lse.empty}"
        )
    return lines


def _wanted(wanted: Wanted) -> str:
    option = f", base 2 where {wanted.natural_if} is false" if wanted.natural_if else ""
    return f"{' or '.join((wanted.layout, *wanted.also))}, base {wanted.base}{option}"


def _observation_lines(seen: Observation) -> list[str]:
    device = f"on {seen.device}" if seen.device != "none" else "source only"
    where = f"{', '.join(seen.builds)}, {device}"
    return [
        f"    {seen.id} ({seen.level.value}, {seen.date}, {where})",
        f"      {seen.statement}",
        f"      Source: {seen.source}.",
    ]
