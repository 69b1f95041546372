"""Each ref of a push becomes a tree, a kind, and what the remote has of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from attngate.hooks.errors import RefusedError
from attngate.hooks.git import Repository
from attngate.hooks.pushes import Push, read_push

if TYPE_CHECKING:
    from conftest import Lab

ZERO = "0" * 40


def pushed(lab: Lab, *lines: str, remote: str = "origin", url: str = "", **variables: str) -> Push:
    with Repository.discover(str(lab.repo), {**lab.env, **variables}) as repository:
        return read_push(repository, "".join(f"{line}\n" for line in lines).encode(), remote, url)


def tree(lab: Lab, name: str) -> str:
    return lab.git("rev-parse", f"{name}^{{tree}}")


@pytest.fixture
def history(lab: Lab) -> dict[str, str]:
    """main: one, two; the remote has one."""
    lab.new()
    lab.remote()
    one = lab.git("rev-parse", "HEAD")
    lab.git("push", "-q", "origin", "main")
    lab.write("two.py", "")
    return {"one": one, "two": lab.commit("two")}


def test_an_update_is_compared_with_what_the_remote_has(lab: Lab, history: dict[str, str]) -> None:
    push = pushed(lab, f"refs/heads/main {history['two']} refs/heads/main {history['one']}")
    (ref,) = push.refs
    assert push.complete
    assert (ref.kind, ref.commit, ref.branch) == ("update", history["two"], "main")
    assert ref.tree == tree(lab, "main")
    assert ref.bases == (tree(lab, history["one"]),)


def test_a_new_branch_is_compared_with_the_nearest_commits_of_the_remote(
    lab: Lab, history: dict[str, str]
) -> None:
    line = f"refs/heads/feat {history['two']} refs/heads/feat {ZERO}"
    (ref,) = pushed(lab, line).refs
    assert ref.kind == "create"
    assert ref.bases == (tree(lab, history["one"]),)
    (same,) = pushed(lab, f"refs/heads/old {history['one']} refs/heads/old {ZERO}").refs
    assert same.bases == (tree(lab, history["one"]),)


def test_a_push_to_a_url_finds_the_remote_by_its_address(lab: Lab, history: dict[str, str]) -> None:
    url = lab.git("remote", "get-url", "origin")
    line = f"refs/heads/feat {history['two']} refs/heads/feat {ZERO}"
    (ref,) = pushed(lab, line, remote=url, url=url).refs
    assert ref.bases == (tree(lab, history["one"]),)
    (unknown,) = pushed(lab, line, remote="../else.git", url="../else.git").refs
    assert unknown.bases == ()
    assert "not known" in unknown.why


def test_a_forced_update_is_compared_with_the_common_ancestor(
    lab: Lab, history: dict[str, str]
) -> None:
    lab.git("commit", "-q", "--amend", "-m", "again", "--no-verify", "--date=2001-01-01T00:00:00")
    amended = lab.git("rev-parse", "HEAD")
    (ref,) = pushed(lab, f"refs/heads/main {amended} refs/heads/main {history['two']}").refs
    assert ref.kind == "force"
    assert ref.bases == (tree(lab, history["one"]),)


def test_a_remote_object_that_was_never_fetched(lab: Lab, history: dict[str, str]) -> None:
    (ref,) = pushed(lab, f"refs/heads/main {history['two']} refs/heads/main {'1' * 40}").refs
    assert ref.kind == "force"
    assert ref.bases == (tree(lab, history["one"]),)


def test_deletions_tags_files_and_notes(lab: Lab, history: dict[str, str]) -> None:
    lab.git("tag", "-a", "v1", "-m", "x")
    lab.git("tag", "file", "HEAD:README")
    push = pushed(
        lab,
        f"(delete) {ZERO} refs/heads/old {history['one']}",
        f"refs/tags/v1 {lab.git('rev-parse', 'v1')} refs/tags/v1 {ZERO}",
        f"refs/tags/file {lab.git('rev-parse', 'file')} refs/tags/file {ZERO}",
        f"refs/notes/commits {history['two']} refs/notes/commits {ZERO}",
        f":/two of them {history['two']} refs/heads/x {ZERO}",
    )
    assert [ref.kind for ref in push.refs] == [
        "delete",
        "tag",
        "not-a-commit",
        "not-source",
        "create",
    ]
    assert [bool(ref.tree) for ref in push.refs] == [False, True, False, False, True]
    assert push.refs[1].commit == history["two"]
    assert push.refs[4].local_ref == ":/two of them"
    assert list(push.by_tree()) == [tree(lab, "main")]
    assert len(push.by_tree()[tree(lab, "main")]) == 2
    assert not push.is_empty


def test_a_push_of_deletions_alone_is_empty(lab: Lab, history: dict[str, str]) -> None:
    assert pushed(lab, f"(delete) {ZERO} refs/heads/old {history['one']}").is_empty
    assert pushed(lab).is_empty


def test_pre_commits_variables_are_one_ref_of_unknown_many(
    lab: Lab, history: dict[str, str]
) -> None:
    push = pushed(
        lab,
        remote="",
        PRE_COMMIT_TO_REF=history["two"],
        PRE_COMMIT_FROM_REF=history["one"],
        PRE_COMMIT_REMOTE_NAME="origin",
        PRE_COMMIT_REMOTE_URL="u",
        PRE_COMMIT_LOCAL_BRANCH="refs/heads/main",
        PRE_COMMIT_REMOTE_BRANCH="refs/heads/main",
    )
    assert not push.complete
    assert (push.remote, push.refs[0].branch) == ("origin", "main")
    assert push.refs[0].tree == tree(lab, "main")


def test_pre_commit_names_a_branch_whose_history_is_all_new(
    lab: Lab, history: dict[str, str]
) -> None:
    push = pushed(
        lab,
        remote="",
        PRE_COMMIT_REMOTE_NAME="origin",
        PRE_COMMIT_REMOTE_URL="u",
        PRE_COMMIT_LOCAL_BRANCH=history["one"],
        PRE_COMMIT_REMOTE_BRANCH="refs/heads/other",
    )
    assert not push.complete
    assert push.refs[0].tree == tree(lab, history["one"])
    assert push.refs[0].branch == "other"


@pytest.mark.parametrize(
    "line", ["x", "a b c d", f"refs/heads/main {'1' * 40} refs/heads/main {ZERO}"]
)
def test_what_cannot_be_understood_or_found_is_refused(
    lab: Lab, history: dict[str, str], line: str
) -> None:
    with pytest.raises(RefusedError):
        pushed(lab, line)
