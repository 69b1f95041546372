"""The one door to git: everything is read, nothing of the user's is written.

A `Repository` resolves git's environment once, to absolute paths, before anybody changes folder.
Trees are named by their object id, computed here from index entries, because `git write-tree` adds
objects and rewrites the index. No call takes a lock, fetches, recurses into a submodule or starts a
file system monitor. Paths are bytes as git stores them.

The way of a commit hook uses `Repository.discover` and `index_state` alone; what these need imports
no more than `os`, `subprocess` and `hashlib`.
"""

from __future__ import annotations

import os
import subprocess

from attngate.hooks.errors import CouldNotCheckError, RefusedError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    import git as gitpython

    from attngate.validators.model import FileEntry, Snapshot

# Variables that bind a git call to one repository. They are kept for calls about the user's
# repository and dropped for everything that runs in folders of our own.
REPOSITORY_VARIABLES = frozenset(
    [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_PREFIX",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_QUARANTINE_PATH",
        "GIT_NAMESPACE",
        "GIT_SHALLOW_FILE",
        "GIT_REPLACE_REF_BASE",
        "GIT_GRAFT_FILE",
        "GIT_CONFIG",
        "GIT_CONFIG_PARAMETERS",
        "GIT_CONFIG_COUNT",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INTERNAL_SUPER_PREFIX",
    ]
)
_PATH_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
)
_ALWAYS = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",  # git 2.44 and newer
    "GIT_ALLOW_PROTOCOL": "",  # the same for older ones: no transport is allowed
    "GIT_NO_REPLACE_OBJECTS": "1",  # what is pushed is the original, not its replacement
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_SETTINGS = ("-c", "submodule.recurse=0", "-c", "core.fsmonitor=false")
# For an index of our own: no shared part and no trees in the user's git folder, no hooks of theirs.
_PRIVATE = (
    *("-c", "core.splitIndex=false"),
    *("-c", "index.sparse=false"),
    *("-c", "core.hooksPath=/dev/null"),
)
_EMPTY_BLOB = {
    "sha1": b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "sha256": b"473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
}
_INTENT_TO_ADD = 1 << 29
_PATHSPEC_LIMIT = 200


def find_git(env: Mapping[str, str]) -> str:
    """Absolute path of the git binary: on PATH, else in GIT_EXEC_PATH.

    Raises:
        CouldNotCheckError: There is none.
    """
    folders = [*env.get("PATH", "").split(os.pathsep), env.get("GIT_EXEC_PATH", "")]
    for folder in folders:
        # A relative entry would run whatever the checked repository calls "git".
        candidate = os.path.join(folder, "git")
        if os.path.isabs(folder) and os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate
    raise CouldNotCheckError(
        "git was not found on PATH or in GIT_EXEC_PATH", "put the folder of git on PATH"
    )


def resolved_environment(env: Mapping[str, str], cwd: str) -> dict[str, str]:
    """A copy of `env` whose git paths are absolute (seen from `cwd`) and whose calls are harmless."""
    resolved = dict(env)
    for name in _PATH_VARIABLES:
        if resolved.get(name):
            resolved[name] = os.path.join(cwd, resolved[name])
    alternates = resolved.get("GIT_ALTERNATE_OBJECT_DIRECTORIES")
    if alternates:
        folders = [os.path.join(cwd, folder) for folder in alternates.split(os.pathsep) if folder]
        resolved["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = os.pathsep.join(folders)
    resolved.update(_ALWAYS)
    return resolved


class IndexState:
    """What the index holds right now, cheap to take and to compare.

    Attributes:
        listing: Output of `git ls-files -s -z`.
        intent_to_add: Paths that are only announced (`git add -N`) and no part of a commit.
    """

    __slots__ = ("intent_to_add", "listing")

    def __init__(self, listing: bytes, intent_to_add: frozenset[bytes]) -> None:
        self.listing = listing
        self.intent_to_add = intent_to_add

    def digest(self) -> str:
        """A name for these entries."""
        import hashlib

        announced = b"\0".join(sorted(self.intent_to_add))
        return hashlib.sha256(self.listing + b"\0\0" + announced).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexState) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())


class Repository:
    """A repository of the user's, read only. Make one with `Repository.discover`.

    Attributes:
        toplevel: Absolute path of the work tree; "" in a bare repository.
        git_dir: Absolute path of this worktree's git folder.
        common_dir: Absolute path of the git folder that all linked worktrees share.
        object_format: "sha1" or "sha256".
        env: Environment of every git call here.
        user_env: Environment as it was given.
    """

    def __init__(
        self,
        git: str,
        user_env: Mapping[str, str],
        env: dict[str, str],
        toplevel: str,
        git_dir: str,
        common_dir: str,
        object_format: str,
    ) -> None:
        self.git = git
        self.user_env = dict(user_env)
        self.env = env
        self.toplevel = toplevel
        self.git_dir = git_dir
        self.common_dir = common_dir
        self.object_format = object_format
        self._hooks_folder = ""
        self._batch: subprocess.Popen[bytes] | None = None
        self._partial: bool | None = None
        self._trees: dict[str, dict[bytes, FileEntry]] = {}

    @classmethod
    def discover(cls, cwd: str, env: Mapping[str, str]) -> Repository:
        """Open the repository that git would use in `cwd` with the variables of `env`.

        Raises:
            UsageError: There is no repository.
            RefusedError: Git will not open it (another owner: `safe.directory`); git's own words.
            CouldNotCheckError: There is no git.
        """
        git = find_git(env)
        cwd = os.path.abspath(cwd)
        resolved = resolved_environment(env, cwd)
        asked = (
            "--absolute-git-dir",
            "--git-common-dir",
            "--show-object-format",
            "--show-toplevel",
        )
        done = _run([git, *_SETTINGS, "rev-parse", *asked], cwd, resolved)
        lines = os.fsdecode(done.stdout).split("\n")[:-1]
        if len(lines) not in (3, 4) or (len(lines) == 3 and done.returncode == 0):
            # No repository, or a line feed in a path: one question at a time.
            lines = [_ask_path(git, cwd, resolved, question) for question in asked]
        git_dir, common_dir, object_format = lines[0], os.path.join(cwd, lines[1]), lines[2]
        toplevel = lines[3] if len(lines) == 4 else ""
        resolved["GIT_DIR"] = git_dir
        if toplevel:
            resolved["GIT_WORK_TREE"] = toplevel
        return cls(
            git, env, resolved, toplevel, git_dir, os.path.normpath(common_dir), object_format
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process that reads blobs, if one was started."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        for pipe in (batch.stdin, batch.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # it ended before it read everything
                    continue
        batch.kill()
        batch.wait()

    @property
    def folder(self) -> str:
        """Where git calls run: the work tree, or the git folder of a bare repository."""
        return self.toplevel or self.git_dir

    # -- calls ---------------------------------------------------------------------------------

    def run(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        accept: Sequence[int] = (0,),
        extra_env: Mapping[str, str] | None = None,
        cwd: str = "",
    ) -> bytes:
        """Output of a git command that only reads.

        Args:
            arguments: After `git`; paths behind a "--".
            stdin: Given to the command.
            accept: Exit codes that are an answer.
            extra_env: Variables on top of `env`.
            cwd: Where it runs; "" for `folder`.

        Raises:
            RefusedError: Git failed; its own words.
        """
        env = {**self.env, **extra_env} if extra_env else self.env
        done = _run([self.git, *_SETTINGS, *arguments], cwd or self.folder, env, stdin)
        if done.returncode not in accept:
            raise _failed(arguments, done)
        return done.stdout

    def env_for_other_repository(self) -> dict[str, str]:
        """The user's environment without what binds git to this repository."""
        return without_repository_variables(self.user_env)

    def planned_push(self, arguments: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
        """What `git push` with these arguments would carry; asks the remote and pushes nothing.

        Returns:
            The remote's URL, and (local ref, remote ref) pairs; the local one is "" for a deletion.

        Raises:
            RefusedError: Git would not push; its own words.
        """
        command = [self.git, "push", "--dry-run", "--porcelain", "--no-verify", *arguments]
        done = subprocess.run(command, env=self.user_env, capture_output=True, check=False)
        url, refs = "", []
        for line in os.fsdecode(done.stdout).split("\n"):
            words = line.split("\t")
            if line.startswith("To "):
                url = line[3:]
            elif len(words) == 3 and words[0] != "=":
                local, _, there = words[1].rpartition(":")
                refs.append(("" if words[0] == "-" else local, there))
        if done.returncode != 0 and not refs:
            raise _failed(("push",), done, self.folder)
        return url, refs

    def push(self, arguments: Sequence[str]) -> int:
        """Run `git push` for the user: their environment, their terminal; returns git's exit code."""
        return subprocess.call([self.git, "push", *arguments], env=self.user_env)

    # -- places --------------------------------------------------------------------------------

    def git_path(self, name: str) -> str:
        """Absolute path of a file in the git folder, wherever this worktree keeps it."""
        answer = self.run("rev-parse", "--git-path", name)
        return os.path.normpath(os.path.join(self.folder, os.fsdecode(answer[:-1])))

    @property
    def hooks_folder(self) -> str:
        """Where git looks for hooks, `core.hooksPath` included."""
        if not self._hooks_folder:
            self._hooks_folder = self.git_path("hooks")
        return self._hooks_folder

    @property
    def index_file(self) -> str:
        """The index that git is about to use."""
        return self.env.get("GIT_INDEX_FILE") or os.path.join(self.git_dir, "index")

    def is_rebase_in_progress(self) -> bool:
        """True while a rebase (or `git am`) replays commits in this worktree."""
        return any(
            os.path.exists(os.path.join(self.git_dir, name))
            for name in ("rebase-merge", "rebase-apply", "REBASE_HEAD")
        )

    def config(self, key: str) -> str | None:
        """A configuration value; None where it is not set."""
        found = self.run("config", "--null", "--get", key, accept=(0, 1))
        return os.fsdecode(found.split(b"\0")[0]) if found else None

    def config_scope(self, key: str) -> tuple[str, str, str] | None:
        """Scope ("local", "worktree", "global", ...), origin and value of a configuration key."""
        found = self.run(
            "config", "--null", "--show-scope", "--show-origin", "--get", key, accept=(0, 1)
        )
        if not found:
            return None
        scope, origin, value = os.fsdecode(found).split("\0")[:3]
        return scope, origin, value

    # -- the index -----------------------------------------------------------------------------

    def index_state(self) -> IndexState:
        """The entries of the index that git exports (`GIT_INDEX_FILE`); takes no lock."""
        listing = self.list_index("-s")
        empty = b" " + _EMPTY_BLOB[self.object_format] + b" 0\t"
        announced: frozenset[bytes] = frozenset()
        if empty in listing:
            # An announced path looks like an empty file; only its flags tell.
            names = [line.split(b"\t", 1)[1] for line in listing.split(b"\0") if empty in line]
            announced = self._intent_to_add(names)
        return IndexState(listing, announced)

    def list_index(self, *arguments: str | bytes) -> bytes:
        """`git ls-files -z`, with the folders of a sparse index unexpanded.

        Git expands them by writing tree objects into the repository, so that is done here instead.
        """
        try:
            return self.run("ls-files", "-z", "--sparse", *arguments)
        except RefusedError:
            return self.run("ls-files", "-z", *arguments)  # git before 2.35

    def _intent_to_add(self, candidates: list[bytes]) -> frozenset[bytes]:
        names = candidates if len(candidates) <= _PATHSPEC_LIMIT else []
        text = self.list_index("--debug", "--", *names)
        flagged = set()
        name, _, rest = text.partition(b"\0")
        while rest:
            rest = rest.partition(b"flags: ")[2]
            flags, _, rest = rest.partition(b"\n")
            if int(flags, 16) & _INTENT_TO_ADD:
                flagged.add(name)
            name, _, rest = rest.partition(b"\0")
        return frozenset(flagged)

    def index_entries(self, state: IndexState | None = None) -> dict[bytes, FileEntry]:
        """Path to entry of what a commit of the index would hold.

        Raises:
            RefusedError: The index is unmerged; the paths are named.
        """
        from attngate.validators.model import FileEntry

        state = self.index_state() if state is None else state
        entries: dict[bytes, FileEntry] = {}
        unmerged: list[bytes] = []
        for line in state.listing.split(b"\0")[:-1]:
            head, path = line.split(b"\t", 1)
            mode, oid, stage = head.split(b" ")
            if stage != b"0":
                unmerged.append(path)
            elif path.endswith(b"/"):
                below = self.tree_files(oid.decode("ascii"))
                entries.update((path + name, entry) for name, entry in below.items())
            elif path not in state.intent_to_add:
                entries[path] = FileEntry(int(mode, 8), oid.decode("ascii"))
        if unmerged:
            raise RefusedError(
                f"the index has unmerged paths: {shown(dict.fromkeys(unmerged))}",
                "resolve the conflicts and `git add` the files, then try again",
            )
        return entries

    def index_snapshot(self) -> Snapshot:
        """What `git commit` is about to commit, compared with HEAD and the heads being merged.

        Raises:
            RefusedError: Unmerged paths, or a changed file whose contents are not in the repository.
        """
        from attngate.hooks.snapshot import staged

        return staged(self)

    def worktree_snapshot(self) -> Snapshot:
        """The tracked files as they lie on disk, compared with HEAD."""
        from attngate.hooks.snapshot import worktree

        return worktree(self)

    def revision_snapshot(self, revision: str) -> Snapshot:
        """The tree of a revision, compared with its parents.

        Raises:
            UsageError: There is no such revision.
        """
        from attngate.hooks.snapshot import revision as of_revision

        return of_revision(self, revision)

    # -- objects -------------------------------------------------------------------------------

    def peel(self, names: Sequence[str]) -> list[str | None]:
        """Object ids that expressions such as "HEAD^{tree}" stand for; None where there is none."""
        if not names:
            return []
        lines = "".join(f"{name}\n" for name in names)
        found = self.run("cat-file", "--batch-check", stdin=os.fsencode(lines)).split(b"\n")
        return [_oid_of(line) for line in found[: len(names)]]

    def head_tree(self) -> str | None:
        """Tree of HEAD; None before the first commit."""
        return self.peel(["HEAD^{tree}"])[0]

    def merge_parents_trees(self) -> list[str]:
        """Trees of the parents that a commit made now would get: HEAD and the heads being merged."""
        heads = ["HEAD"]
        try:
            with open(os.path.join(self.git_dir, "MERGE_HEAD"), encoding="ascii") as file:
                heads += file.read().split()
        except OSError:
            pass
        return [tree for tree in self.peel([f"{head}^{{tree}}" for head in heads]) if tree]

    def resolve_commit(self, revision: str) -> str:
        """Object id of the commit that a revision names.

        Raises:
            UsageError: There is no such commit.
        """
        if "\n" not in revision and revision.strip():
            found = self.peel([f"{revision}^{{commit}}"])[0]
            if found:
                return found
        raise UsageError(f"there is no commit {revision!r} in {self.folder}", "see `git log --all`")

    def commit_parents(self, commit: str) -> list[str]:
        """Parents of a commit as it records them; a shallow clone may not have them."""
        found = self.read_object(commit)
        if found is None:
            return []
        header = found[1].split(b"\n\n", 1)[0].split(b"\n")
        return [line[7:].decode("ascii") for line in header if line.startswith(b"parent ")]

    def tree_files(self, tree: str) -> dict[bytes, FileEntry]:
        """Every entry of a tree by path, submodules included as what they are.

        Raises:
            RefusedError: The tree cannot be read.
        """
        if tree not in self._trees:
            self._trees[tree] = self._list_tree(tree)
        return self._trees[tree]

    def _list_tree(self, tree: str) -> dict[bytes, FileEntry]:
        from attngate.validators.model import FileEntry

        entries: dict[bytes, FileEntry] = {}
        if tree == self.empty_tree():  # git knows it without having it
            return entries
        for line in self.run("ls-tree", "-r", "-z", "--full-tree", tree).split(b"\0")[:-1]:
            head, path = line.split(b"\t", 1)
            mode, _kind, oid = head.split(b" ")
            entries[path] = FileEntry(int(mode, 8), oid.decode("ascii"))
        return entries

    def empty_tree(self) -> str:
        """Id of the empty tree in this repository's hash function."""
        return object_id(b"tree", b"", self.object_format)

    def read_blob(self, oid: str) -> bytes | None:
        """Raw bytes of a blob; None where a partial clone has not fetched it.

        Raises:
            RefusedError: The object is damaged, lost, or no blob.
        """
        found = self.read_object(oid)
        if found is None and self._is_partial():
            return None
        if found is None:
            raise RefusedError(
                f"object {oid} is missing or damaged in {self.git_dir}", "run `git fsck`"
            )
        if found[0] != b"blob":
            raise RefusedError(
                f"object {oid} is a {found[0].decode()}, not a file", "run `git fsck`"
            )
        return found[1]

    def _is_partial(self) -> bool:
        """True for a clone that may lack objects which its remote has."""
        if self._partial is None:
            keys = r"^(extensions\.partialclone|remote\..*\.promisor)$"
            self._partial = bool(self.run("config", "--get-regexp", keys, accept=(0, 1)))
        return self._partial

    def read_object(self, oid: str) -> tuple[bytes, bytes] | None:
        """Type and contents of an object, through one long-lived process; None where it is missing."""
        if self._batch is None or self._batch.poll() is not None:
            self._batch = subprocess.Popen(
                [self.git, *_SETTINGS, "cat-file", "--batch"],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        assert self._batch.stdin is not None
        assert self._batch.stdout is not None
        try:
            self._batch.stdin.write(oid.encode("ascii") + b"\n")
            self._batch.stdin.flush()
            header = self._batch.stdout.readline()
        except OSError:
            header = b""
        if header.endswith(b" missing\n"):
            return None
        words = header.split()
        data = self._batch.stdout.read(int(words[2]) + 1) if len(words) == 3 else b""
        if len(words) != 3 or len(data) != int(words[2]) + 1:
            raise RefusedError(f"object {oid} cannot be read from {self.git_dir}", "run `git fsck`")
        return words[1], data[:-1]

    def missing_objects(self, oids: Iterable[str]) -> set[str]:
        """Those object ids that the repository does not have."""
        wanted = sorted(set(oids))
        return {oid for oid, found in zip(wanted, self.peel(wanted), strict=True) if found is None}

    # -- whitespace ----------------------------------------------------------------------------

    def whitespace_errors(
        self, base: str | None, snapshot: Snapshot
    ) -> list[tuple[bytes, int, str]]:
        """What `git diff --check` says about the lines that a tree adds to a base.

        Attributes come from the checked tree, not from the files that happen to be checked out.

        Args:
            base: Tree it is compared with; None for the empty tree.
            snapshot: The tree.

        Returns:
            Path, line and git's words ("trailing whitespace", "leftover conflict marker", ...).
        """
        from attngate.hooks.export import private_folder

        with private_folder("index") as folder:
            index = os.path.join(folder, "index")
            lines = b"".join(
                b"%o %s\t%s\0" % (entry.mode, entry.oid.encode("ascii"), path)
                for path, entry in snapshot.files.items()
            )
            # An index of our own in a folder of our own, which is also the work tree: git looks
            # for attributes in the current folder first.
            env = {"GIT_INDEX_FILE": index, "GIT_WORK_TREE": folder}
            env |= self._with_unstored(snapshot, folder)
            write = (*_PRIVATE, "update-index", "-z", "--index-info")
            self.run(*write, stdin=lines, extra_env=env, cwd=folder)
            shape = (
                "--cached",
                "--check",
                "--no-renames",
                "--no-ext-diff",
                "--ignore-submodules=all",
            )
            against = base or self.empty_tree()
            text = self.run("diff-index", *shape, against, extra_env=env, cwd=folder, accept=(0, 2))
        return _whitespace_lines(text, snapshot.files)

    def _with_unstored(self, snapshot: Snapshot, folder: str) -> dict[str, str]:
        """Variables under which git also finds blobs that only lie on disk.

        They are written into an object folder of our own: the user's database stays as it is.
        """
        oids = {snapshot.files[p].oid for p in snapshot.changed or () if p in snapshot.files}
        if not oids:
            return {}
        lines = "".join(f"{oid}\n" for oid in sorted(oids)).encode("ascii")
        known = self.run("cat-file", "--batch-check", stdin=lines).splitlines()
        absent = [line.split()[0].decode() for line in known if line.endswith(b" missing")]
        unstored = [(oid, raw) for oid in absent if (raw := snapshot.read(oid)) is not None]
        if not unstored:
            return {}
        objects = os.path.join(folder, "objects")
        os.mkdir(objects, 0o700)
        own = os.path.join(self.common_dir, "objects")
        others = filter(None, [own, self.user_env.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "")])
        env = {
            "GIT_OBJECT_DIRECTORY": objects,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(others),
        }
        for _, raw in unstored:
            self.run("hash-object", "-w", "--stdin", stdin=raw, extra_env=env)
        return env

    # -- history -------------------------------------------------------------------------------

    def library(self) -> gitpython.Repo:
        """GitPython's view of this repository; slow to import, so never on the way of a commit."""
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        import git as gitpython

        gitpython.refresh(self.git)
        repository = gitpython.Repo(self.git_dir, search_parent_directories=False)
        repository.git.update_environment(
            **{k: v for k, v in self.env.items() if k.startswith("GIT_")}
        )
        return repository

    def is_ancestor(self, older: str, newer: str) -> bool:
        """True where commit `older` is `newer` or one of its ancestors."""
        done = _run(
            [self.git, *_SETTINGS, "merge-base", "--is-ancestor", older, newer],
            self.folder,
            self.env,
        )
        return done.returncode == 0

    def merge_base(self, first: str, second: str) -> str | None:
        """The best common ancestor of two commits; None where there is none."""
        answer = self.run("merge-base", first, second, accept=(0, 1, 128))
        return answer.split(b"\n")[0].decode("ascii") or None


def without_repository_variables(env: Mapping[str, str]) -> dict[str, str]:
    """A copy of `env` for git calls and processes that are not about the user's repository."""
    return {
        name: value
        for name, value in env.items()
        if name not in REPOSITORY_VARIABLES
        and not name.startswith(("GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"))
    }


def object_id(kind: bytes, data: bytes, object_format: str) -> str:
    """Git's name for an object of a kind ("blob", "tree") in "sha1" or "sha256"."""
    import hashlib

    header = kind + b" " + str(len(data)).encode("ascii") + b"\0"
    return hashlib.new(object_format, header + data, usedforsecurity=False).hexdigest()


def tree_id(entries: Mapping[bytes, FileEntry], object_format: str) -> str:
    """Id of the tree that `git write-tree` would make of these entries, without writing objects."""
    root: dict[bytes, object] = {}
    for path, entry in entries.items():
        folder = root
        *parents, name = path.split(b"/")
        for parent in parents:
            below = folder.setdefault(parent, {})
            assert isinstance(below, dict), f"{path!r} lies below a file"
            folder = below
        folder[name] = entry
    return _folder_id(root, object_format)


def _folder_id(folder: Mapping[bytes, object], object_format: str) -> str:
    from attngate.validators.model import FileEntry

    rows = []
    for name, item in folder.items():
        if isinstance(item, FileEntry):
            rows.append((name, b"%o" % item.mode, name, item.oid))
        else:
            assert isinstance(item, dict)
            # Git sorts a folder as if its name ended with a slash.
            rows.append((name + b"/", b"40000", name, _folder_id(item, object_format)))
    rows.sort()
    data = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(oid) for _, mode, name, oid in rows)
    return object_id(b"tree", data, object_format)


def _whitespace_lines(
    text: bytes, files: Mapping[bytes, FileEntry]
) -> list[tuple[bytes, int, str]]:
    """Parse `path:line: words.` and the line itself below; a path may hold line feeds and colons."""
    import re

    found = []
    header = b""
    skip = False
    for line in text.split(b"\n"):
        if skip:
            skip = False
            continue
        header += line
        match = next(
            (m for m in re.finditer(rb":(\d+): (?=[a-z])", header) if header[: m.start()] in files),
            None,
        )
        if match is None:
            header = header + b"\n" if header else b""
            continue
        words = os.fsdecode(header[match.end() :]).rstrip(".")
        found.append((header[: match.start()], int(match[1]), words))
        # Only these two come without the line itself.
        skip = not words.startswith(("leftover conflict marker", "new blank line at EOF"))
        header = b""
    return found


def shown(paths: Iterable[bytes], limit: int = 5) -> str:
    """Paths for a message: a few of them, with control characters escaped."""
    names = [
        os.fsdecode(path).encode("unicode_escape", "backslashreplace").decode("ascii")
        if any(byte < 32 for byte in path)
        else os.fsdecode(path)
        for path in paths
    ]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _oid_of(line: bytes) -> str | None:
    words = line.split(b" ")
    # "missing" and "ambiguous" follow a name; an answer is: id, type, size.
    if len(words) == 3 and words[2].isdigit():
        return words[0].decode("ascii")
    return None


def _run(
    command: Sequence[str | bytes], cwd: str, env: Mapping[str, str], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd=cwd, env=env, input=stdin, capture_output=True, check=False)


def _ask_path(git: str, cwd: str, env: Mapping[str, str], question: str) -> str:
    done = _run([git, *_SETTINGS, "rev-parse", question], cwd, env)
    if done.returncode == 0:
        return os.fsdecode(done.stdout[:-1])
    if question == "--show-toplevel":
        return ""
    raise _failed(("rev-parse", question), done, cwd)


def _failed(
    arguments: Sequence[str | bytes], done: subprocess.CompletedProcess[bytes], cwd: str = ""
) -> UsageError | RefusedError:
    words = os.fsdecode(done.stderr).strip()
    if "dubious ownership" in words or "safe.directory" in words:
        # Git's own words hold the command that helps; whether to trust is the user's decision.
        return RefusedError(words)
    if "not a git repository" in words:
        return UsageError(
            f"there is no git repository in {cwd}: {words}", "run this in a git work tree"
        )
    verb = next(
        (os.fsdecode(word) for word in arguments[::2] if word != "-c"), os.fsdecode(arguments[0])
    )
    return RefusedError(f"`git {verb}` failed (exit {done.returncode}): {words or 'no message'}")
