"""Decides what counts for a call: the installed signature, a recorded build, or all known ones.

What is known about the build decides how much a difference weighs:

- An installed signature, or an observation on exactly the expected build: error.
- An observation on another build of the same generation: warning, due for revalidation.
- No expected build at all: only what every recorded build refuses is a finding, and it is a warning.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from attngate.validators.contracts.load import families
from attngate.validators.contracts.match import Arguments, Breach, Comparison, Problem, compare
from attngate.validators.contracts.sites import Site, SiteFinder, Target
from attngate.validators.installed import describe
from attngate.validators.model import Build as ExpectedBuild
from attngate.validators.model import CallVerdict, ContractCall, Level, Severity
from attngate.validators.pins import Pin, builds_for, read_pins
from attngate.validators.resolve import Resolver, short

if TYPE_CHECKING:
    import ast

    from attngate.validators.context import SourceFile
    from attngate.validators.contracts.schema import Build, Entry
    from attngate.validators.installed import InstalledCallable, InstalledComponent
    from attngate.validators.model import CheckOptions, Location, Snapshot
    from attngate.validators.signatures import Signature

    Choice = tuple[Build, Entry]

# What a signature alone decides; the rest rests on observations also where the source is installed.
_BY_SIGNATURE = (Breach.KEYWORD, Breach.ARGUMENTS, Breach.ORDER)


@dataclass(frozen=True, slots=True)
class Basis:
    """One thing that a call is compared with.

    Attributes:
        build: The contract build.
        entry: Its entry point.
        exact: True where the expected build is one that was observed.
        why: The build and how it was chosen, in words.
        level: How strongly it is established.
        installed: The installed definition, where it is known.
        installed_why: Where that lies, in words.
    """

    build: Build
    entry: Entry
    exact: bool
    why: str
    level: Level
    installed: InstalledCallable | None = None
    installed_why: str = ""

    @property
    def signature(self) -> Signature:
        """The signature that counts."""
        return self.installed.signature if self.installed is not None else self.entry.signature


@dataclass(frozen=True, slots=True)
class Judged:
    """A problem with its weight: what a rule makes a finding of."""

    problem: Problem
    location: Location
    severity: Severity
    origin: str
    level: Level


@dataclass(frozen=True, slots=True)
class Judgement:
    """One call with its verdict and the problems that lead to it."""

    call: ContractCall
    problems: tuple[Judged, ...] = ()


@dataclass(eq=False)
class Judge:
    """Judges every contract call of a tree.

    Args:
        snapshot: The tree, for its pins.
        options: Installed components and configured builds.
        files: Every Python file of the tree by path.
    """

    snapshot: Snapshot
    options: CheckOptions
    files: dict[str, SourceFile] = field(repr=False)

    @cached_property
    def judgements(self) -> tuple[Judgement, ...]:
        """Every call of an entry point in the tree, in order of path and line."""
        known = tuple(families().values())
        words = [w for family in known for w in family.modules]
        if not any(w in file.source.text for file in self.files.values() for w in words):
            return ()
        resolver = Resolver(self.files, self.options.import_roots)
        return tuple(self._judge(site) for site in SiteFinder(resolver, known).sites())

    @cached_property
    def _pins(self) -> list[Pin]:
        return read_pins(self.snapshot)

    def _judge(self, site: Site) -> Judgement:
        known = [t for t in site.targets if t.choices]
        if site.is_partial:
            bound = (
                ", ".join(f"`{k.arg or '**'}`" for k in site.call.keywords) or "nothing by keyword"
            )
            return self._undecided(
                site, f"a partial application that binds {bound}; the call is elsewhere"
            )
        if not known:
            return self._undecided(site, site.targets[0].reason)
        compared = [(t, b, self._compare(site, t, b)) for t in known for b in self.bases(t)]
        agreed = _agreed([c for _, _, c in compared])
        unlisted = [t.reason for t in site.targets if not t.choices]
        doubts = list(dict.fromkeys([*site.doubts, *unlisted]))
        if doubts and agreed:
            return self._undecided(
                site, f"{doubts[0]}; as {known[0].path} it would break the contract", compared
            )
        if agreed:
            return self._violation(site, agreed, compared)
        return self._no_violation(site, doubts, compared)

    def _compare(self, site: Site, target: Target, basis: Basis) -> Comparison:
        arguments = Arguments(site.call)
        for partial in reversed(target.partials):
            names = self.files[partial.file].source.names
            arguments.add(partial.call, partial.call.args[1:], names)
        arguments.add(site.call, site.call.args, site.module.names)
        return compare(arguments, basis.entry, basis.signature, target.family, site.module.names)

    # The builds that count

    def expected(self, component: str, distributions: tuple[str, ...]) -> list[ExpectedBuild]:
        """The builds a component is expected in: configured, else what the tree pins; none if unknown."""
        configured = self.options.builds.get(component)
        if configured is not None:
            return [configured]
        return builds_for(self._pins, distributions)

    def bases(self, target: Target) -> list[Basis]:
        """Everything a call of the target has to be compared with."""
        component = target.choices[0][0].component
        installed = self.options.installed.get(component)
        if installed is not None:
            return self._installed_bases(target, installed)
        distributions = tuple(d for build, _ in target.choices for d in build.distributions)
        expected = self.expected(component, distributions)
        if not expected:
            return [
                Basis(
                    b,
                    e,
                    exact=False,
                    why=f"{_known_as(b)}; no build of {component} is known here",
                    level=_level(b),
                )
                for b, e in target.choices
            ]
        return [basis for build in expected for basis in _recorded_bases(target, build)]

    def _installed_bases(self, target: Target, installed: InstalledComponent) -> list[Basis]:
        name = target.choices[0][1].name
        origin = describe(installed)
        version = ExpectedBuild(installed.version, origin)
        seen = installed.callables.get(name)
        where = f"{origin}, {seen.file} line {seen.line}" if seen is not None else ""
        return [
            Basis(b.build, b.entry, b.exact, b.why, b.level, seen, where)
            for b in _recorded_bases(target, version)
        ]

    # Verdicts

    def _undecided(
        self,
        site: Site,
        reason: str,
        compared: list[tuple[Target, Basis, Comparison]] | None = None,
    ) -> Judgement:
        origin, level = (
            ("", Level.UNTESTED) if not compared else (compared[0][1].why, compared[0][1].level)
        )
        return Judgement(_contract_call(site, CallVerdict.UNKNOWN, reason, origin, level))

    def _no_violation(
        self, site: Site, doubts: list[str], compared: list[tuple[Target, Basis, Comparison]]
    ) -> Judgement:
        doubts = [*_split(compared), *doubts]
        doubts += [d for _, _, c in compared for d in c.doubts if d not in doubts]
        if doubts:
            return self._undecided(site, "; ".join(dict.fromkeys(doubts)), compared)
        basis = compared[0][1]
        reason = "arguments and returned values agree; dtypes, shapes and head sizes are not visible here"
        return Judgement(
            _contract_call(site, CallVerdict.CONFORMS, reason, _origin(compared, None), basis.level)
        )

    def _violation(
        self, site: Site, agreed: list[Problem], compared: list[tuple[Target, Basis, Comparison]]
    ) -> Judgement:
        judged = tuple(self._weigh(site, problem, compared) for problem in agreed)
        call = _contract_call(
            site,
            CallVerdict.VIOLATES,
            "; ".join(j.problem.message for j in judged),
            judged[0].origin,
            judged[0].level,
            tuple(dict.fromkeys(j.problem.breach.value for j in judged)),
        )
        return Judgement(call, judged)

    def _weigh(
        self, site: Site, problem: Problem, compared: list[tuple[Target, Basis, Comparison]]
    ) -> Judged:
        settled = [_settles(basis, problem) for _, basis, _ in compared]
        severity = Severity.ERROR if all(settled) and problem.certain else Severity.WARNING
        basis = compared[0][1]
        level = Level.SOURCE_INSPECTED if _by_installed(basis, problem) else basis.level
        location = site.module.file.at_node(problem.node)  # type: ignore[arg-type]
        return Judged(problem, location, severity, _origin(compared, problem), level)


def _split(compared: list[tuple[Target, Basis, Comparison]]) -> list[str]:
    """Why a call is not decided that some of what it is compared with refuses, and some does not."""
    refused = [(t, b) for t, b, c in compared if c.problems]
    if not refused:
        return []
    accepted = [t for t, _, c in compared if not c.problems]
    ways = [t for t, _ in refused if t not in accepted]
    if not ways:
        builds = ", ".join(dict.fromkeys(b.build.id for _, b in refused))
        return [f"it depends on the build: {builds} refuses it"]
    partial = " with what `functools.partial` binds" if ways[0].partials else ""
    return [
        f"the callee is bound in several ways, and only as {ways[0].path}{partial} it would be refused"
    ]


def _recorded_bases(target: Target, expected: ExpectedBuild) -> list[Basis]:
    """What is recorded for a build: its own observations, else its generation's, else everything."""
    own = [(b, e) for b, e in target.choices if _is_observed(b, expected.version)]
    if own:
        return [
            Basis(
                b,
                e,
                exact=True,
                why=f"{_known_as(b)}, for {expected.version} ({expected.origin})",
                level=_level(b),
            )
            for b, e in own
        ]
    same = [(b, e) for b, e in target.choices if _is_generation(b, expected.version)]
    due = f"due for revalidation on {expected.version or 'an unknown version'} ({expected.origin})"
    return [
        Basis(b, e, exact=False, why=f"{_known_as(b)}; {due}", level=_level(b))
        for b, e in same or target.choices
    ]


def _is_observed(build: Build, version: str) -> bool:
    if version in build.observed:
        return True
    return (
        not build.local
        and _is_generation(build, version)
        and version.partition("+")[0] in build.observed
    )


def _is_generation(build: Build, version: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        parsed = Version(version)
    except InvalidVersion:
        return False
    if not Version(build.since) <= Version(parsed.public) < Version(build.before):
        return False
    local = parsed.local or ""
    return local.startswith(build.local) if build.local else not _has_vendor(local)


def _has_vendor(local: str) -> bool:
    """True for a local part that one of the recorded vendor builds claims."""
    vendors = {b.local for f in families().values() for b in f.builds if b.local}
    return any(local.startswith(vendor) for vendor in vendors)


def _known_as(build: Build) -> str:
    seen = build.observations[0]
    device = f" on {seen.device}" if seen.device != "none" else ""
    return f"contract {build.id}, {seen.level.value} {seen.date}{device} for {seen.build}"


def _level(build: Build) -> Level:
    return build.observations[0].level


def _by_installed(basis: Basis, problem: Problem) -> bool:
    return basis.installed is not None and problem.breach in _BY_SIGNATURE


def _settles(basis: Basis, problem: Problem) -> bool:
    return basis.exact or _by_installed(basis, problem)


def _agreed(comparisons: list[Comparison]) -> list[Problem]:
    """The problems that every comparison found; the first one's words, certain only if all are."""
    found: list[Problem] = []
    for problem in comparisons[0].problems:
        same = [
            next(
                (
                    p
                    for p in c.problems
                    if (p.breach, p.subject) == (problem.breach, problem.subject)
                ),
                None,
            )
            for c in comparisons
        ]
        if all(same):
            is_certain = all(p.certain for p in same if p is not None)
            found.append(problem if is_certain == problem.certain else _uncertain(problem))
    return found


def _uncertain(problem: Problem) -> Problem:
    return replace(problem, certain=False)


def _origin(compared: list[tuple[Target, Basis, Comparison]], problem: Problem | None) -> str:
    basis = compared[0][1]
    if basis.installed is not None and (problem is None or _by_installed(basis, problem)):
        return basis.installed_why
    others = list(dict.fromkeys(b.why for _, b, _ in compared))
    return (
        others[0]
        if len(others) == 1
        else f"{len(others)} recorded builds agree: {'; '.join(others)}"
    )


def _contract_call(
    site: Site,
    verdict: CallVerdict,
    reason: str,
    origin: str,
    level: Level,
    codes: tuple[str, ...] = (),
) -> ContractCall:
    entries = dict.fromkeys(t.path for t in site.targets)
    location = site.module.file.at_node(site.call)
    callee = short(site.call.func if not site.is_partial else _prepared(site.call))
    return ContractCall(
        location, " or ".join(entries), callee, verdict, reason, origin, level, codes
    )


def _prepared(call: ast.Call) -> ast.expr:
    return call.args[0] if call.args else call.func
