"""The static check of one tree: rules, linters, whitespace, and what of it was there before."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attngate.hooks import baseline, config, fast, interpreters, linters, snapshot, upstream
from attngate.hooks.errors import AttngateError, CouldNotCheckError, UsageError
from attngate.hooks.linters import LintRequest
from attngate.hooks.remembered import MemoryStore
from attngate.hooks.report import Policy, TreeReport, Unavailable, standings
from attngate.validators import check as validators_check
from attngate.validators.check import check
from attngate.validators.contracts.load import all_builds
from attngate.validators.installed import read_components
from attngate.validators.model import (
    MODE_SYMLINK,
    Build,
    CheckOptions,
    CheckResult,
    Finding,
    Location,
    Severity,
    display_path,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from attngate.hooks.config import Loaded
    from attngate.hooks.git import Repository
    from attngate.hooks.linters import LinterRun
    from attngate.validators.context import Context
    from attngate.validators.installed import InstalledComponent
    from attngate.validators.memory import Memory
    from attngate.validators.model import Snapshot
    from attngate.validators.target import TargetTree


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """How a tree is checked.

    Attributes:
        env: The caller's environment.
        repository: Where the tree lies; None for an installed distribution.
        everything: True where nothing counts as inherited: whatever no baseline holds is new.
        refs: Names under which the tree is pushed.
        loaded: Settings to use instead of the tree's own.
        previous_target: Folder or version of the target before a sync; "" where no sync is looked into.
        sync_base: The tree before the sync.
    """

    env: Mapping[str, str]
    repository: Repository | None
    everything: bool = False
    refs: tuple[str, ...] = ()
    loaded: Loaded | None = None
    previous_target: str = ""
    sync_base: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """A tree's report with what it rests on.

    Attributes:
        report: Without targets.
        loaded: The settings that were used.
        interpreter: Absolute path of the configured interpreter, "" where it cannot be used.
        depends: Paths outside the tree whose change could change the report.
    """

    report: TreeReport
    loaded: Loaded
    interpreter: str
    depends: tuple[str, ...]


def examine(subject: Snapshot, bases: Sequence[str], request: CheckRequest) -> Checked:
    """Check a tree and tell what is new in it.

    Args:
        subject: The tree.
        bases: Trees it is compared with, HEAD's (or the remote's) first.
        request: See `CheckRequest`.

    Raises:
        UsageError: The tree's configuration cannot be used.
    """
    loaded = request.loaded or config.load(subject, request.env)
    toplevel = request.repository.toplevel if request.repository else ""
    interpreter, trouble = _interpreter(loaded, toplevel)
    target, no_target = _target(loaded, toplevel, interpreter)
    trouble += no_target
    options = _options(loaded, interpreter, target)
    if request.previous_target:
        _refuse_half_a_sync(request.previous_target, target)
        before = upstream.previous(request.previous_target, target)
        options = replace(options, previous=before, sync_base=request.sync_base)
    run = _Run(request, loaded, interpreter, options)
    store = run.store()
    memory = store.load() if store is not None else None
    result = check(subject, run.options, memory)
    lint = run.lint(subject)
    findings = [*result.findings, *_linted(lint.runs)]
    parents = run.parents(bases, findings, memory)
    if store is not None and memory is not None:
        store.keep(memory)
    reported, unused = standings(
        findings, parents, baseline.read(subject, loaded.settings.baseline)
    )
    whitespace, unused = standings(run.whitespace(subject, bases), (), unused)
    report = TreeReport(
        subject=subject.subject,
        tree=subject.tree,
        refs=request.refs,
        scope=_scope(loaded),
        inspected=result.inspected,
        not_checked=result.not_checked,
        findings=(*reported, *whitespace),
        suppressed=result.suppressed,
        calls=result.calls,
        linters=lint.runs,
        unavailable=(*trouble, *_unavailable_linters(lint.runs, loaded)),
        disclosures=(
            *_disclosures(loaded, lint),
            *_unused_baseline(unused.total(), loaded),
            *_without_target(subject, target, no_target),
            *_without_sync(subject, request.sync_base),
        ),
        internal=result.internal,
    )
    return Checked(report, loaded, interpreter, tuple(_depends(run, lint.runs)))


def context_of(subject: Snapshot, request: CheckRequest) -> Context:
    """What a check of the tree would give its rules.

    Raises:
        UsageError: The tree's configuration cannot be used.
        CouldNotCheckError: The configured target is not there.
    """
    loaded = request.loaded or config.load(subject, request.env)
    toplevel = request.repository.toplevel if request.repository else ""
    interpreter, _ = _interpreter(loaded, toplevel)
    target = upstream.locate(loaded.settings.upstream, toplevel, interpreter)
    return validators_check.context_of(subject, _options(loaded, interpreter, target))


@dataclass(frozen=True, slots=True)
class _Lint:
    runs: tuple[LinterRun, ...]
    ignored_attributes: tuple[str, ...] = ()
    left_out: tuple[tuple[bytes, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Run:
    request: CheckRequest
    loaded: Loaded
    interpreter: str
    options: CheckOptions

    def lint(self, tree: Snapshot, only: Iterable[str] | None = None) -> _Lint:
        """Run the configured linters on the exported tree; nothing is exported for none."""
        if not linters.configured(tree):
            asked = LintRequest(tree, "", self.request.env)
            return _Lint(tuple(linters.run_linters(asked, only)))
        from attngate.hooks.export import export

        def is_wanted(path: bytes) -> bool:
            # A link may stand for a package; one that ends at no exported file is left out.
            return linters.is_linted(path) or tree.files[path].mode == MODE_SYMLINK

        with export(tree, is_wanted) as exported:
            asked = LintRequest(
                snapshot=tree,
                folder=exported.folder,
                env=self.request.env,
                interpreter=self.interpreter if self.loaded.settings.interpreter else "",
                packages=self.loaded.settings.packages,
                cache_folder=self._mypy_cache(),
            )
            runs = tuple(linters.run_linters(asked, only))
            left_out = tuple(each for each in exported.left_out if linters.is_linted(each[0]))
            return _Lint(runs, tuple(exported.ignored_attributes), left_out)

    def store(self) -> MemoryStore | None:
        """Where this check's memory lies; an installed distribution and a sync have none."""
        repository = None if self.request.previous_target else self.request.repository
        return MemoryStore(repository, self.options, self.request.env) if repository else None

    def parents(
        self, bases: Sequence[str], findings: Sequence[Finding], memory: Memory | None = None
    ) -> list[list[Finding]]:
        """Findings of the parents' trees; asked for only where there is something to compare."""
        repository = self.request.repository
        if self.request.everything or repository is None or not findings:
            return []
        tools = {finding.name for finding in findings}
        return [
            self._parent(snapshot.tree_snapshot(repository, base, "base"), tools, memory)
            for base in bases
        ]

    def _parent(self, tree: Snapshot, tools: set[str], memory: Memory | None) -> list[Finding]:
        result: CheckResult = check(tree, self.options, memory)
        again = tools.intersection(("ruff", "ruff format", "mypy"))
        lint = self.lint(tree, again) if again else _Lint(())
        return [*result.findings, *_linted(lint.runs)]

    def whitespace(self, tree: Snapshot, bases: Sequence[str]) -> list[Finding]:
        """What git's whitespace check says about the change; a merge's other side is not ours."""
        repository = self.request.repository
        if repository is None or tree.tree in bases:
            return []
        per_base = [
            repository.whitespace_errors(base, tree)
            for base in (bases or [None])  # type: ignore[list-item]
        ]
        common = set.intersection(*(set(errors) for errors in per_base))
        return [_whitespace_finding(tree, *error) for error in per_base[0] if error in common]

    def _mypy_cache(self) -> str:
        repository = self.request.repository
        folder = fast.cache_folder(self.request.env)
        if repository is None or not folder:
            return ""
        name = hashlib.sha256(os.fsencode(repository.common_dir)).hexdigest()[:16]
        cache = os.path.join(os.path.dirname(folder), "mypy", name)
        try:
            fast.make_folders(cache)
        except OSError:
            return ""
        return cache if os.access(cache, os.W_OK) else ""


def push_hook_warning(repository: Repository) -> str:
    """A sentence where git will not run attngate before a push; "" where it will."""
    from attngate.hooks.commands.install import is_ours, is_pre_commits

    path = os.path.join(repository.hooks_folder, "pre-push")
    if not os.access(path, os.X_OK):
        state = "there is no pre-push hook"
    elif is_ours(path) or is_pre_commits(path) or _mentions_us(path):
        return ""
    else:
        state = f"the pre-push hook {path} does not run attngate"
    return f"{state}, so pushes are not checked; `attngate install` adds it"


def _mentions_us(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"attngate" in file.read(1 << 16)
    except OSError:
        return False


def _interpreter(loaded: Loaded, toplevel: str) -> tuple[str, list[Unavailable]]:
    try:
        path = interpreters.locate(loaded.settings.interpreter, toplevel)
        interpreters.site_packages(path)
    except AttngateError as error:
        what = "signatures of the installed components"
        # Recorded contracts are used instead, and each call says so: no reason to stop a commit.
        return "", [Unavailable(what, error.message, error.advice, Policy.WARN)]
    return path, []


def _target(
    loaded: Loaded, toplevel: str, interpreter: str
) -> tuple[TargetTree | None, list[Unavailable]]:
    try:
        return upstream.locate(loaded.settings.upstream, toplevel, interpreter), []
    except CouldNotCheckError as error:
        what = "names, signatures and classes of the target vLLM"
        # The rest of the check stands without it, and each run says that this part is missing.
        return None, [Unavailable(what, error.message, error.advice, Policy.WARN)]


def _refuse_half_a_sync(previous: str, target: TargetTree | None) -> None:
    if target is None:
        raise UsageError(
            f"a sync from {previous} cannot be looked into: there is no target of now to compare with",
            "let `upstream` in [tool.attngate], or ATTNGATE_UPSTREAM, name the folder that holds it",
        )


def _without_sync(subject: Snapshot, base: Snapshot | None) -> list[str]:
    if base is None or base.tree != subject.tree:
        return []
    advice = "--sync-base names another one"
    return [f"sync: {base.subject} has the same tree, so that nothing can be lost; {advice}"]


def _without_target(
    subject: Snapshot, target: TargetTree | None, said: Sequence[Unavailable]
) -> list[str]:
    """A sentence where the tree uses vLLM and there is no source of it to compare with."""
    if target is not None or said or not _uses(subject, upstream.PACKAGE):
        return []
    advice = "`upstream` in [tool.attngate] names a folder with its source"
    return [f"not compared with a target vLLM: none is installed or configured; {advice}"]


def _uses(subject: Snapshot, package: str) -> bool:
    word = re.compile(rb"^\s*(?:from|import) %b[. ]" % package.encode(), re.MULTILINE)
    for path in subject.files:
        if path.endswith(b".py") and word.search(subject.blob(path) or b""):
            return True
    return False


def _options(loaded: Loaded, interpreter: str, target: TargetTree | None = None) -> CheckOptions:
    settings = loaded.settings
    builds = {
        name: Build(version, _build_origin(loaded, name))
        for name, version in settings.builds.items()
    }
    return CheckOptions(
        include=settings.include,
        exclude=settings.exclude,
        packages=settings.packages,
        import_roots=settings.import_roots,
        ignore=frozenset(settings.ignore),
        builds=builds,
        installed=installed_components(interpreter) if interpreter else {},
        target=target,
        operators=frozenset(settings.operators),
        generated=settings.generated,
    )


def installed_components(interpreter: str) -> dict[str, InstalledComponent]:
    """What the interpreter has of the components that contracts speak of, read from its files."""
    return read_components(list(interpreters.site_packages(interpreter)), all_builds())


def _build_origin(loaded: Loaded, name: str) -> str:
    origin = loaded.origins.get(f"builds.{name}", "")
    return "[tool.attngate] builds" if origin == config.PYPROJECT else origin


def _linted(runs: Iterable[LinterRun]) -> list[Finding]:
    return [finding for run in runs for finding in run.findings]


def _unavailable_linters(runs: Iterable[LinterRun], loaded: Loaded) -> list[Unavailable]:
    policy = Policy(loaded.settings.gate.on_missing_linter)
    advice = 'install it there, or set gate.on_missing_linter = "warn" in [tool.attngate]'
    return [
        Unavailable(run.tool, f"{run.configured_by} configures it, {run.message}", advice, policy)
        for run in runs
        if run.status == linters.COULD_NOT_RUN
    ]


def _whitespace_finding(tree: Snapshot, path: bytes, line: int, words: str) -> Finding:
    lines = (tree.blob(path) or b"").splitlines()
    text = lines[line - 1] if 0 < line <= len(lines) else b""
    return Finding(
        code="whitespace",
        name="git diff --check",
        severity=Severity.WARNING,
        location=Location(display_path(path), line),
        message=words,
        line_text=text.decode("utf-8", "replace").strip(),
    )


def _scope(loaded: Loaded) -> str:
    settings = loaded.settings
    if not settings.include and not settings.exclude:
        return "every Python file"
    origin = loaded.origins["include" if settings.include else "exclude"]
    return f"scope of {origin}"


def loaded_disclosures(loaded: Loaded) -> list[str]:
    """What a report has to say about where its settings came from."""
    said = list(loaded.warnings)
    if loaded.from_environment:
        said.append(f"settings from the environment: {', '.join(loaded.from_environment)}")
    return said


def _disclosures(loaded: Loaded, lint: _Lint) -> list[str]:
    said = loaded_disclosures(loaded)
    if lint.ignored_attributes:
        said.append(f"raw bytes were checked; not applied: {', '.join(lint.ignored_attributes)}")
    said += [
        f"{display_path(path)} was not given to the linters: {why}" for path, why in lint.left_out
    ]
    return said


def _unused_baseline(count: int, loaded: Loaded) -> list[str]:
    if not count:
        return []
    path = loaded.settings.baseline
    advice = "`attngate baseline create` drops them"
    return [f"{count} entries of the baseline {path} match nothing any more; {advice}"]


def _depends(run: _Run, runs: Iterable[LinterRun]) -> list[str]:
    paths = interpreters.installed_files(run.interpreter) if run.interpreter else []
    names = [lint.tool for lint in runs if lint.status != linters.NOT_CONFIGURED]
    own = run.interpreter if run.loaded.settings.interpreter else ""
    target = run.options.target
    sources = upstream.depends(target) if target is not None else ()
    return [*paths, *sources, *linters.programs(run.request.env, own, names)]


def with_unavailable(report: TreeReport, items: Iterable[Unavailable]) -> TreeReport:
    """The report with more that could not be checked."""
    return replace(report, unavailable=(*report.unavailable, *items))
