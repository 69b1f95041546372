from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from attngate.validators import check as module
from attngate.validators.check import check
from attngate.validators.model import (
    MODE_GITLINK,
    MODE_SYMLINK,
    CallVerdict,
    CheckOptions,
    FileEntry,
    Level,
    Severity,
    Snapshot,
)
from attngate.validators.registry import Rule, all_rules, rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from attngate.validators.context import Hit

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
CALL = """from flash_attn import flash_attn_varlen_func

def f(q, cu, n):
    return flash_attn_varlen_func(q, q, q, cu, cu, n, n, out=q)
"""


def test_scope_is_by_globs_and_names_lead_out_of_it(make_snapshot: Callable[..., Snapshot]) -> None:
    tree = make_snapshot(
        {
            "pkg/__init__.py": "",
            "pkg/fa.py": "from flash_attn import flash_attn_varlen_func\n",
            "pkg/use.py": CALL.replace("flash_attn import", "pkg.fa import"),
            "pkg/broken.py": "x = (",
            "tests/broken.py": "x = (",
        }
    )
    result = check(tree, CheckOptions(include=("pkg/",), exclude=("pkg/fa.py", "broken.py")))
    assert result.inspected == 2
    assert [f.code for f in result.findings] == ["ATT101"]
    everything = check(tree, CheckOptions())
    assert everything.inspected == 5
    assert len(everything.findings) == 3


def test_says_what_was_not_looked_into(make_snapshot: Callable[..., Snapshot]) -> None:
    files = {"lfs.py": POINTER, "link.py": "lfs.py", "sub": "0" * 40, "lost.py": "x = 1"}
    tree = make_snapshot(files, {"link.py": MODE_SYMLINK, "sub": MODE_GITLINK})
    lost = tree.files[b"lost.py"].oid
    partial = Snapshot(
        tree.tree, "", tree.files, lambda oid: None if oid == lost else tree.read(oid)
    )
    result = check(partial, CheckOptions())
    assert result.inspected == 0
    assert {path: why.split(":")[0] for path, why in result.not_checked} == {
        "lfs.py": "a git-lfs pointer",
        "link.py": "a symbolic link",
        "lost.py": "its contents were not fetched (partial clone)",
        "sub": "a submodule",
    }


def test_case_pairs_and_lost_submodules_are_warnings(
    make_snapshot: Callable[..., Snapshot],
) -> None:
    modules = '[submodule "kept"]\n\tpath = kept\n\turl = ../kept\n'
    files = {
        "pkg/Mod.py": "x = 1",
        "pkg/mod.py": "y = 1",
        "kept": "1",
        "lost": "2",
        ".gitmodules": modules,
    }
    tree = make_snapshot(files, {"kept": MODE_GITLINK, "lost": MODE_GITLINK})
    findings = check(tree, CheckOptions()).findings
    assert [(f.code, f.severity, f.location.path) for f in findings] == [
        ("ATT003", Severity.WARNING, "lost"),
        ("ATT003", Severity.WARNING, "pkg/mod.py"),
    ]
    assert "pkg/Mod.py" in findings[1].message
    assert not check(make_snapshot({"a.py": "", "b.py": ""}), CheckOptions()).findings


def test_paths_that_are_no_text_are_checked(make_snapshot: Callable[..., Snapshot]) -> None:
    good = make_snapshot({"a.py": "x = ("})
    entry = good.files[b"a.py"]
    odd = Snapshot(good.tree, "", {b"od\xff d\n.py": entry}, good.read)
    (finding,) = check(odd, CheckOptions()).findings
    assert finding.location.path == "od\udcff d\n.py"
    assert len(finding.fingerprint) == 20


def test_a_rule_that_crashes_is_told_and_stops_no_other(
    make_snapshot: Callable[..., Snapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(_file: object, _context: object) -> Iterator[Hit]:
        raise KeyError("thing")
        yield

    broken = Rule("ATT999", "broken", Severity.ERROR, "file", crash, "s", "w", "i")
    monkeypatch.setattr(module, "all_rules", lambda: {**all_rules(), "ATT999": broken})
    text = "x = (\n# attngate: ignore[ATT999] a comment that may not be called useless\n"
    result = check(make_snapshot({"a.py": text, "b.py": "x = 1"}), CheckOptions())
    assert result.internal
    assert [(f.code, f.location.path) for f in result.findings] == [
        ("ATT000", "a.py"),
        ("ATT001", "a.py"),
        ("ATT000", "b.py"),
    ]
    assert "ATT999 broken crashed: KeyError" in result.findings[0].message
    assert not check(
        make_snapshot({"b.py": ""}), CheckOptions(ignore=frozenset(["ATT999"]))
    ).internal


def test_suppressed_findings_keep_their_reason(make_snapshot: Callable[..., Snapshot]) -> None:
    text = CALL.replace("out=q)", "out=q)  # attngate: ignore[ATT101] the fork takes it")
    result = check(make_snapshot({"a.py": text}), CheckOptions())
    assert not result.findings
    ((finding, reason),) = result.suppressed
    assert (finding.code, reason) == ("ATT101", "the fork takes it")
    assert result.calls[0].verdict is CallVerdict.VIOLATES


def test_the_check_of_no_files_is_empty(make_snapshot: Callable[..., Snapshot]) -> None:
    result = check(make_snapshot({}), CheckOptions())
    assert (result.inspected, result.findings, result.calls) == (0, (), ())


def test_a_rule_needs_a_manual_and_a_free_code() -> None:
    def no_manual() -> Iterator[Hit]:
        """Only a summary."""
        yield from ()

    with pytest.raises(ValueError, match="Why and Instead"):
        rule("ATT998", "no-manual")(no_manual)
    with pytest.raises(ValueError, match="already called syntax-error"):
        rule("ATT001", "another")(no_manual)
    with pytest.raises(ValueError, match="three digits"):
        rule("X1", "odd")(no_manual)
    assert "ATT998" not in all_rules()


def test_a_real_tree_is_read_as_git_stores_it(tmp_path: Path) -> None:
    """Bytes, names and modes of a commit, with CR LF, an encoding, a link and a nested clone."""
    git = [
        "git",
        "-C",
        str(tmp_path),
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "-c",
        "core.autocrlf=false",
    ]

    def run(*args: str) -> bytes:
        return subprocess.run([*git, *args], check=True, capture_output=True).stdout

    run("init", "-q")
    (tmp_path / "crlf.py").write_bytes(b"x = 1\r\ny = (\r\n")
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\nx = '\xe9'\n")
    (tmp_path / "call.py").write_text(CALL)
    (tmp_path / "link.py").symlink_to("call.py")
    nested = tmp_path / "nested"
    nested.mkdir()
    subprocess.run(["git", "init", "-q", str(nested)], check=True)
    git_nested = ["git", "-C", str(nested), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git_nested, "commit", "-q", "--allow-empty", "-m", "n"], check=True)
    run("add", "-A")
    run("commit", "-q", "-m", "all")
    files: dict[bytes, FileEntry] = {}
    for line in run("ls-tree", "-r", "-z", "HEAD").split(b"\0")[:-1]:
        meta, _, path = line.partition(b"\t")
        mode, _, oid = meta.decode().split()
        files[path] = FileEntry(int(mode, 8), oid)
    tree = run("rev-parse", "HEAD^{tree}").decode().strip()
    result = check(
        Snapshot(tree, "commit", files, lambda oid: run("cat-file", "blob", oid)), CheckOptions()
    )
    assert [(f.code, f.location.path, f.location.line) for f in result.findings] == [
        ("ATT101", "call.py", 4),
        ("ATT001", "crlf.py", 2),
        ("ATT003", "nested", 1),
    ]
    assert result.findings[0].location.symbol == "f"
    assert [path for path, _ in result.not_checked] == ["link.py", "nested"]
    assert [(c.verdict, c.level) for c in result.calls] == [(CallVerdict.VIOLATES, Level.RECORDED)]
