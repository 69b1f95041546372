"""What a push carries: each ref line of git's pre-push hook, peeled to the tree that is checked.

Git writes "LOCAL_REF LOCAL_OID REMOTE_REF REMOTE_OID" for every ref. The object id decides, not
what is checked out. pre-commit reads these lines itself and passes one ref on in variables; such a
push is marked as incomplete.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attngate.hooks.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attngate.hooks.git import Repository

# Refs that carry no source; everything else is checked, wherever it lies.
_NOT_SOURCE = ("refs/notes/", "refs/stash")


@dataclass(frozen=True, slots=True)
class PushedRef:
    """One ref of a push.

    Attributes:
        local_ref: What the user named, "(delete)" for a deletion.
        local_oid: The pushed object.
        remote_ref: Full name on the remote.
        remote_oid: What git believes the remote has there; zeros for nothing.
        kind: "update", "create", "delete", "force", "tag", "not-a-commit" or "not-source".
        commit: The commit behind the object; "" where there is none.
        tree: The tree to check; "" where nothing is to be checked.
        bases: Trees of what the remote already has; empty where that is not known (then every
            finding counts as new).
        why: Why nothing is checked, or what could not be compared; "" otherwise.
    """

    local_ref: str
    local_oid: str
    remote_ref: str
    remote_oid: str
    kind: str
    commit: str = ""
    tree: str = ""
    bases: tuple[str, ...] = ()
    why: str = ""

    @property
    def branch(self) -> str:
        """The remote branch's short name, for policies by branch; the full ref for other refs."""
        return self.remote_ref.removeprefix("refs/heads/")


@dataclass(frozen=True, slots=True)
class Push:
    """A push as the hook sees it.

    Attributes:
        remote: Name of the remote, or its URL where it has none.
        url: Where it goes.
        refs: Every ref, in git's order.
        complete: False where one ref is known and others may exist (under pre-commit).
    """

    remote: str
    url: str
    refs: tuple[PushedRef, ...]
    complete: bool = True

    @property
    def is_empty(self) -> bool:
        """True where no object is brought to the remote: nothing to push, or deletions alone."""
        return all(ref.kind == "delete" for ref in self.refs)

    def by_tree(self) -> dict[str, list[PushedRef]]:
        """Refs by the tree that is checked for them; refs without a tree are left out."""
        grouped: dict[str, list[PushedRef]] = {}
        for ref in self.refs:
            if ref.tree:
                grouped.setdefault(ref.tree, []).append(ref)
        return grouped


def read_push(repository: Repository, stdin: bytes, remote: str, url: str) -> Push:
    """Read what git (or pre-commit, through `repository.user_env`) says about a push.

    Args:
        repository: Where the objects are.
        stdin: The hook's whole standard input.
        remote: The hook's first argument.
        url: Its second.

    Raises:
        RefusedError: A line cannot be understood, or an object is not in the repository.
    """
    env = repository.user_env
    lines = [line for line in stdin.split(b"\n") if line.strip()]
    # For a history that the remote knows nothing of, pre-commit names the branch and no commits.
    named = env.get("PRE_COMMIT_TO_REF") or env.get("PRE_COMMIT_LOCAL_BRANCH")
    passed_on = not lines and bool(named)
    if passed_on:
        lines = [_line_of_pre_commit(repository, env)]
        remote = remote or env.get("PRE_COMMIT_REMOTE_NAME", "")
        url = url or env.get("PRE_COMMIT_REMOTE_URL", "")
    reader = _Reader(repository, _remote_name(repository, remote, url))
    refs = reader.read([_fields(line) for line in lines])
    return Push(remote or url, url, refs, complete=not passed_on)


def _fields(line: bytes) -> tuple[str, str, str, str]:
    # From the right: the local ref is what the user typed, and ":/some words" holds spaces.
    words = os.fsdecode(line).rsplit(" ", 3)
    if len(words) != 4 or not (_is_oid(words[1]) and _is_oid(words[3])):
        raise RefusedError(
            f"cannot understand this line of the pre-push hook's input: {line!r}",
            "run the hook through git, or pipe it lines of the form LOCAL_REF OID REMOTE_REF OID",
        )
    return words[0], words[1], words[2], words[3]


def _is_oid(word: str) -> bool:
    return len(word) in (40, 64) and not word.strip("0123456789abcdef")


def _is_zero(oid: str) -> bool:
    return not oid.strip("0")  # forty or sixty-four of them


def _line_of_pre_commit(repository: Repository, env: Mapping[str, str]) -> bytes:
    """The one ref that pre-commit passes on, in the form of git's own line."""
    zero = "0" * len(repository.empty_tree())
    to_ref = env.get("PRE_COMMIT_TO_REF") or env["PRE_COMMIT_LOCAL_BRANCH"]
    from_ref = env.get("PRE_COMMIT_FROM_REF", "")
    local = repository.peel([to_ref])[0]
    if local is None:
        raise RefusedError(f"{to_ref}, which pre-commit passes on, is not in the repository")
    # FROM_REF is pre-commit's idea of a range; only git knows what the remote has.
    base = repository.peel([from_ref])[0] if from_ref else None
    local_ref = env.get("PRE_COMMIT_LOCAL_BRANCH") or to_ref
    remote_ref = env.get("PRE_COMMIT_REMOTE_BRANCH") or "refs/heads/unknown"
    return os.fsencode(f"{local_ref} {local} {remote_ref} {base or zero}")


def _remote_name(repository: Repository, remote: str, url: str) -> str:
    """Name of the remote whose tracking refs tell what it has; "" where there is none."""
    if repository.config(f"remote.{remote}.url") or repository.config(f"remote.{remote}.pushurl"):
        return remote
    for known in repository.library().remotes if url else []:
        if url in known.urls:
            return str(known.name)
    return ""


class _Reader:
    """Peels the objects of many refs in few calls."""

    def __init__(self, repository: Repository, remote: str) -> None:
        self._repository = repository
        self._remote = remote
        self._bases: dict[tuple[str, str], tuple[tuple[str, ...], bool]] = {}

    def read(self, lines: list[tuple[str, str, str, str]]) -> tuple[PushedRef, ...]:
        oids = list(dict.fromkeys(line[1] for line in lines if not _is_zero(line[1])))
        peel = self._repository.peel
        exists = dict(zip(oids, peel(oids), strict=True))
        commits = dict(zip(oids, peel([f"{oid}^{{commit}}" for oid in oids]), strict=True))
        trees = dict(zip(oids, peel([f"{oid}^{{tree}}" for oid in oids]), strict=True))
        for oid, found in exists.items():
            if found is None:
                raise RefusedError(
                    f"the pushed object {oid} is not in the repository", "run `git fsck`"
                )
        return tuple(self._ref(line, commits.get(line[1]), trees.get(line[1])) for line in lines)

    def _ref(
        self, line: tuple[str, str, str, str], commit: str | None, tree: str | None
    ) -> PushedRef:
        local_ref, local_oid, remote_ref, remote_oid = line
        if _is_zero(local_oid):
            return PushedRef(*line, kind="delete", why="a deletion")
        if remote_ref.startswith(_NOT_SOURCE):
            return PushedRef(*line, kind="not-source", why=f"{remote_ref} carries no source")
        if commit is None:
            why = "" if tree else f"{local_ref} names a file, not a commit"
            return PushedRef(*line, kind="not-a-commit", tree=tree or "", why=why)
        if tree is None:
            raise RefusedError(
                f"the tree of commit {commit} is not in the repository", "run `git fsck`"
            )
        bases, forced = self._bases_of(commit, remote_oid)
        kind = _kind(remote_ref, remote_oid, forced=forced)
        why = "" if bases else "what the remote has is not known here"
        return PushedRef(*line, kind=kind, commit=commit, tree=tree, bases=bases, why=why)

    def _bases_of(self, commit: str, remote_oid: str) -> tuple[tuple[str, ...], bool]:
        key = (commit, remote_oid)
        if key not in self._bases:
            self._bases[key] = self._find_bases(commit, remote_oid)
        return self._bases[key]

    def _find_bases(self, commit: str, remote_oid: str) -> tuple[tuple[str, ...], bool]:
        """Trees the remote has of this history, and whether the push replaces what is there."""
        forced = False
        if not _is_zero(remote_oid):
            there = self._repository.peel([f"{remote_oid}^{{commit}}"])[0]
            forced = there is None or not self._repository.is_ancestor(there, commit)
            if there is not None:
                base = self._repository.merge_base(there, commit) if forced else there
                if base:
                    return self._trees([base]), forced
        return self._trees(self._boundary(commit)), forced

    def _boundary(self, commit: str) -> list[str]:
        """The newest commits of this history that the remote is known to have."""
        if not self._remote:
            return []
        pattern = f"refs/remotes/{self._remote}/"
        if not self._repository.run("for-each-ref", "--count=1", "--format=x", pattern):
            return []
        arguments = ("--boundary", commit, "--not", f"--remotes={_literal(self._remote)}")
        listed = self._repository.run("rev-list", *arguments, "--").decode("ascii").split()
        found = [line[1:] for line in listed if line.startswith("-")]
        # Nothing new at all: the remote has this very commit.
        return found if listed else [commit]

    def _trees(self, commits: list[str]) -> tuple[str, ...]:
        found = self._repository.peel([f"{oid}^{{tree}}" for oid in commits])
        return tuple(dict.fromkeys(tree for tree in found if tree))


def _literal(name: str) -> str:
    return "".join("\\" + letter if letter in "*?[\\" else letter for letter in name)


def _kind(remote_ref: str, remote_oid: str, *, forced: bool) -> str:
    if remote_ref.startswith("refs/tags/"):
        return "tag"
    if _is_zero(remote_oid):
        return "create"
    return "force" if forced else "update"
