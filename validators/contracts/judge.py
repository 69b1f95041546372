"""Decides what counts for a call: the installed signature, a recorded build, or all known ones.

What is known about the build decides how much a difference weighs:

- An installed signature, or an observation on exactly the expected build: error.
- An observation on another build of the same generation: warning, due for revalidation.
- No expected build at all: only what every recorded build refuses is a finding, and it is a warning.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from attngate.validators.contracts.basis import Basis, is_generation, is_seen_on
from attngate.validators.contracts.flow import Flow
from attngate.validators.contracts.load import all_builds, families, target_families
from attngate.validators.contracts.match import Breach, Comparison, Problem, compare
from attngate.validators.contracts.sites import Forward, Site, SiteFinder, Target
from attngate.validators.contracts.tells import Tells
from attngate.validators.infer import Inference
from attngate.validators.installed import describe
from attngate.validators.model import Build as ExpectedBuild
from attngate.validators.model import CallVerdict, ContractCall, Level, Severity
from attngate.validators.pins import Pin, builds_for, read_pins
from attngate.validators.resolve import Resolver, short

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from attngate.validators.context import SourceFile
    from attngate.validators.contracts.schema import Build, Entry
    from attngate.validators.installed import InstalledComponent
    from attngate.validators.model import CheckOptions, Location, Snapshot

    Compared = tuple[Target, Basis, Comparison]
    # One problem as each of the things a call is compared with has found it.
    Agreed = list[Problem]


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


class Aliases(Protocol):
    """Names that stand for entry points, as an earlier check found them."""

    @property
    def exported(self) -> Iterable[str]:
        """Names that any file may see."""

    @property
    def local(self) -> Mapping[str, Iterable[str]]:
        """Names of each file."""


@dataclass(eq=False)
class Judge:
    """Judges every contract call of a tree.

    Args:
        snapshot: The tree, for its pins.
        options: Installed components and configured builds.
        files: Every Python file of the tree by path.

    Attributes:
        inference: What expressions are, for methods of a component's classes; None to leave these out.
        only: Files whose calls are judged; None for all.
        earlier: Names that an earlier check found to stand for entry points; None to find them.
        consulted: File with a call, or where one was looked for, to the files this rests on.
        watched: Words by which further files would have been found.
        exported: Names that stand for entry points in any file.
        local: Names that stand for entry points in one file.
    """

    snapshot: Snapshot
    options: CheckOptions
    files: dict[str, SourceFile] = field(repr=False)
    inference: Inference | None = field(default=None, repr=False)
    only: Sequence[str] | None = None
    earlier: Aliases | None = None
    consulted: dict[str, set[str]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    local: dict[str, set[str]] = field(default_factory=dict)
    watched: set[str] = field(default_factory=set)

    @cached_property
    def _finder(self) -> SiteFinder:
        known = (*families().values(), *target_families().values())
        resolver = Resolver(self.files, self.options.import_roots)
        # Its own answers: what another question has found out already leaves no trace of its files.
        own = Inference(self.inference.index) if self.inference is not None else None
        return SiteFinder(resolver, known, inference=own)

    @cached_property
    def judgements(self) -> tuple[Judgement, ...]:
        """Every call of an entry point in the tree, in order of path and line."""
        finder = self._finder
        resolver = finder.resolver
        if self.earlier is not None:
            finder.resume(self.earlier.exported, self.earlier.local)
        sites = finder.sites(self.only)
        self.consulted = finder.consulted
        found = tuple(j for site in sites if (j := self._judge_watched(site)) is not None)
        self.watched = resolver.watched | finder.watched | self._tells.words
        self.exported, self.local = finder.aliases
        return found

    @cached_property
    def _pins(self) -> list[Pin]:
        return read_pins(self.snapshot)

    def _judge_watched(self, site: Site) -> Judgement | None:
        """Judge a call, and note every file that this rested on."""
        resolver = self._finder.resolver
        outer, resolver.consulted = resolver.consulted, set()
        if site.forward is not None:
            judgement = self._judge_forwarded(site, site.forward)
        else:
            judgement = self._judge(site) if _is_recorded(site) else self._judge_flow(site)
        told = {p for t in site.targets for b, _ in t.choices for p in self._tells.rests_on(b)}
        self.consulted.setdefault(site.module.file.path, set()).update(resolver.consulted | told)
        resolver.consulted |= outer
        return judgement

    def _judge_forwarded(self, site: Site, forward: Forward) -> Judgement | None:
        """A call of a function of the tree that hands further keywords on: only these are looked at."""
        arguments = self._finder.forwarded(site, forward)
        names = forward.module.names
        compared = []
        for target in (t for t in site.targets if _is_component(t)):
            for basis in self.bases(target):
                found = compare(arguments, basis.entry, basis.signature, target.family, names)
                own = [p for p in found.problems if p.breach is Breach.KEYWORD]
                problems = tuple(p for p in own if p.node in site.call.keywords)
                compared.append((target, basis, Comparison(problems, ())))
        agreed = _agreed([c for _, _, c in compared]) if compared else []
        return self._violation(site, agreed, compared) if agreed else None

    def _judge_flow(self, site: Site) -> Judgement | None:
        """A call of the target's own operator: only what a signature does not show is looked at."""
        if site.is_partial:
            return None
        compared = [c for t in site.targets for _, e in t.choices for c in self._flows(site, t, e)]
        agreed = _agreed([c for _, _, c in compared]) if compared else []
        return self._violation(site, agreed, compared) if agreed and not site.doubts else None

    def _flows(self, site: Site, target: Target, entry: Entry) -> Iterator[Compared]:
        """What goes into an operator, or what becomes of what it hands on of a component."""
        arguments = self._finder.arguments(site.module, site.call, target)
        flow = Flow(self._finder, self)
        owner = self._finder.target_at(entry.forwards) if entry.forwards else None
        if owner is None:
            problems = tuple(flow.wrong_lse(site, arguments, entry))
            yield target, Basis(target.choices[0][0], entry, None), Comparison(problems, ())
            return
        for basis in self.bases(owner):
            problems = tuple(flow.wrong_rows(site, arguments, entry, basis))
            yield target, basis, Comparison(problems, ())

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
        arguments = self._finder.arguments(site.module, site.call, target)
        entry = basis.entry
        found = compare(arguments, entry, basis.signature, target.family, site.module.names)
        flow = Flow(self._finder, self)
        problems = [
            *found.problems,
            *flow.wrong_lse(site, arguments, entry),
            *flow.wrong_rows(site, arguments, entry, basis),
            *flow.object_uses(site, entry),
        ]
        return Comparison(tuple(problems), found.doubts)

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
            return [Basis(build, entry, None) for build, entry in self._choices(target)]
        return [basis for build in expected for basis in self._recorded_bases(target, build)]

    def _choices(self, target: Target) -> list[tuple[Build, Entry]]:
        """What may run where no build of the component is named: the vendor's, where there is one."""
        theirs = [(b, e) for b, e in target.choices if b.vendor and b.vendor in self._vendors]
        mine = theirs if len(self._vendors) == 1 and theirs else list(target.choices)
        return self._as_told(mine, mine)

    @cached_property
    def _vendors(self) -> set[str]:
        """Vendors of the builds that the tree or the settings name; "" for upstream's."""
        found: set[str] = set()
        for build in all_builds():
            for expected in self.expected(build.component, build.distributions):
                if is_generation(build, expected.version, any_local=True):
                    found.add(build.vendor)
        return found

    def _as_told(
        self, mine: list[tuple[Build, Entry]], related: list[tuple[Build, Entry]]
    ) -> list[tuple[Build, Entry]]:
        """Of several generations the one whose own names the tree imports without a way around."""
        told = [(b, e) for b, e in related if b.tells and self._tells.names(b)]
        return told or mine

    @cached_property
    def _tells(self) -> Tells:
        return Tells(self.files)

    def _recorded_bases(self, target: Target, expected: ExpectedBuild) -> list[Basis]:
        """What is recorded for a build: its own generation, else everything there is."""
        version = expected.version
        own = [(b, e) for b, e in target.choices if is_generation(b, version)]
        related = [(b, e) for b, e in target.choices if is_generation(b, version, any_local=True)]
        exact = [(b, e) for b, e in own if any(is_seen_on(b, o, version) for o in b.observations)]
        chosen = self._as_told(exact or own or list(target.choices), related)
        return [Basis(build, entry, expected) for build, entry in chosen]

    def _installed_bases(self, target: Target, installed: InstalledComponent) -> list[Basis]:
        origin = describe(installed)
        expected = ExpectedBuild(installed.version, origin)
        seen = installed.callables.get(target.choices[0][1].name)
        where = f"{origin}, {seen.file} line {seen.line}" if seen is not None else ""
        return [
            replace(b, installed=seen, installed_why=where)
            for b in self._recorded_bases(target, expected)
        ]

    # Verdicts

    def _undecided(self, site: Site, reason: str, compared: Sequence[Compared] = ()) -> Judgement:
        origin, level = "", Level.UNTESTED
        if compared:
            origin, level = compared[0][1].conforming_why, compared[0][1].conforming_level
        return Judgement(_contract_call(site, CallVerdict.UNKNOWN, reason, origin, level))

    def _no_violation(self, site: Site, doubts: list[str], compared: list[Compared]) -> Judgement:
        doubts = [*_split(compared), *doubts, *(d for _, _, c in compared for d in c.doubts)]
        if doubts:
            return self._undecided(site, "; ".join(dict.fromkeys(doubts)), compared)
        basis = compared[0][1]
        reason = "arguments and returned values agree; dtypes, shapes and head sizes are not visible here"
        origin = _joined([b.conforming_why for _, b, _ in compared])
        return Judgement(
            _contract_call(site, CallVerdict.CONFORMS, reason, origin, basis.conforming_level)
        )

    def _violation(self, site: Site, agreed: list[Agreed], compared: list[Compared]) -> Judgement:
        judged = tuple(self._weigh(site, problems, compared) for problems in agreed)
        call = _contract_call(
            site,
            CallVerdict.VIOLATES,
            "; ".join(j.problem.message for j in judged),
            judged[0].origin,
            judged[0].level,
            tuple(dict.fromkeys(j.problem.breach.value for j in judged)),
        )
        return Judgement(call, judged)

    def _weigh(self, site: Site, problems: Agreed, compared: list[Compared]) -> Judged:
        """The weight of a problem that everything the call is compared with has found."""
        found = list(zip((basis for _, basis, _ in compared), problems, strict=True))
        is_settled = all(basis.settles(problem) and problem.certain for basis, problem in found)
        basis, problem = min(found, key=lambda pair: pair[1].certain)
        return Judged(
            problem,
            site.module.file.at_node(problem.node),
            Severity.ERROR if is_settled else Severity.WARNING,
            _joined([b.why(p) for b, p in found]),
            basis.level(problem),
        )


def _is_recorded(site: Site) -> bool:
    """True for a call of a component; False for one of the target's own operators."""
    return any(_is_component(target) for target in site.targets)


def _is_component(target: Target) -> bool:
    return any(build.signatures == "recorded" for build in target.family.builds)


def _agreed(comparisons: list[Comparison]) -> list[Agreed]:
    """The problems that every comparison found, each as seen by all of them."""
    found: list[Agreed] = []
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
            found.append([p for p in same if p is not None])
    return found


def _joined(origins: list[str]) -> str:
    distinct = list(dict.fromkeys(origins))
    return distinct[0] if len(distinct) == 1 else f"all of: {'; '.join(distinct)}"


def _split(compared: list[Compared]) -> list[str]:
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
