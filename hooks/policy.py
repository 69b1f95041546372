"""The decision: a pure function of what was found, what could not be had, and what was configured."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from attngate.hooks.errors import (
    EXIT_COULD_NOT_CHECK,
    EXIT_FINDINGS,
    EXIT_INTERNAL,
    worst,
)
from attngate.hooks.report import Decision, Policy, TargetState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from attngate.hooks.report import TreeReport

Reason = tuple[int, str]


def decide(trees: Sequence[TreeReport], *, strict: bool = False) -> Decision:
    """Exit code and reasons for a run over these trees.

    Args:
        trees: What was established about each.
        strict: True where warnings block and where "0 files inspected" is not enough.
    """
    reasons: list[Reason] = []
    for tree in trees:
        found = list(_static_reasons(tree, strict=strict))
        found += _numerical_reasons(tree)
        found += _unavailable_reasons(tree)
        where = f"{tree.subject}: " if len(trees) > 1 else ""
        reasons += [(code, where + text) for code, text in found]
    return Decision(worst([code for code, _ in reasons]), tuple(text for _, text in reasons))


def policy_for(setting: str | Mapping[str, str], branches: Iterable[str]) -> Policy:
    """The policy of the branches that are pushed: "refuse" as soon as one of them asks for it.

    Args:
        setting: One policy, or policies by pattern of the branch's name with "default" for the rest;
            the first pattern that fits counts. Without a default the rest is refused.
        branches: Remote names ("refs/heads/main"); none stands for the default.
    """
    if isinstance(setting, str):
        return Policy(setting)
    names = list(branches) or [""]
    chosen = {_by_pattern(setting, name) for name in names}
    return Policy.REFUSE if Policy.REFUSE in chosen else Policy.WARN


def _by_pattern(setting: Mapping[str, str], ref: str) -> Policy:
    branch = ref.removeprefix("refs/heads/")
    for pattern, policy in setting.items():
        if pattern != "default" and branch and fnmatchcase(branch, pattern):
            return Policy(policy)
    return Policy(setting.get("default", "refuse"))


def _static_reasons(tree: TreeReport, *, strict: bool) -> Iterator[Reason]:
    if tree.internal:
        yield EXIT_INTERNAL, "a rule of attngate crashed, so the check is incomplete"
    blocking = tree.blocking(strict=strict)
    if blocking:
        count = len(blocking)
        yield EXIT_FINDINGS, "1 finding blocks" if count == 1 else f"{count} findings block"
    if strict and tree.statically_checked and not tree.inspected:
        yield EXIT_COULD_NOT_CHECK, "0 files inspected"


def _numerical_reasons(tree: TreeReport) -> Iterator[Reason]:
    # What the change cannot affect had failed before it, like an inherited finding.
    failed = [t.name for t in tree.targets or () if t.state is TargetState.FAILED and t.affected]
    if failed:
        yield EXIT_FINDINGS, f"numerical validation failed: {', '.join(failed)}"


def _unavailable_reasons(tree: TreeReport) -> Iterator[Reason]:
    for item in tree.unavailable:
        if item.policy is Policy.REFUSE:
            yield EXIT_COULD_NOT_CHECK, f"{item.what}: {item.why}"
