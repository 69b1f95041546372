"""Installed components are stand-ins here: folders with the files that a real build would have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from attngate.validators.check import check
from attngate.validators.contracts.load import all_builds
from attngate.validators.installed import InstalledComponent, distribution_version, read_components
from attngate.validators.model import Build, CallVerdict, CheckOptions, Severity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from attngate.validators.model import Snapshot

INTERFACE = '''import torch

raise RuntimeError("a reader that imports this file is wrong")


@torch.no_grad()
def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *, novel=None):
    """A build with a keyword that no contract knows."""


def flash_attn_with_kvcache(q, k_cache, v_cache, **kwargs):
    pass
'''
CALL = """from flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache


def f(q, cu, n):
    flash_attn_varlen_func(q, q, q, cu, cu, n, n, novel=1)
    flash_attn_varlen_func(q, q, q, cu, cu, n, n, causal=True)
    a, b = flash_attn_varlen_func(q, q, q, cu, cu, n, n)
    flash_attn_with_kvcache(q, q, q, whatever=1)
"""


def install(folder: Path, version: str, files: dict[str, str]) -> None:
    info = folder / f"flash_attn-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: flash-attn\nVersion: {version}\n\nVersion: no\n"
    )
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def standin(
    folder: Path, version: str, interface: str = INTERFACE
) -> dict[str, InstalledComponent]:
    init = "from flash_attn.flash_attn_interface import flash_attn_varlen_func, flash_attn_with_kvcache\n"
    install(
        folder,
        version,
        {"flash_attn/__init__.py": init, "flash_attn/flash_attn_interface.py": interface},
    )
    return read_components([str(folder)], all_builds())


def test_reads_signatures_from_the_source(tmp_path: Path) -> None:
    found = standin(tmp_path, "2.8.3+local.1")["flash_attn"]
    assert found.version == "2.8.3+local.1"
    seen = found.callables["flash_attn_varlen_func"]
    assert [p.name for p in seen.signature.parameters][-1] == "novel"
    assert seen.file == str(tmp_path / "flash_attn/flash_attn_interface.py")
    assert seen.line == 7
    assert found.callables["flash_attn_with_kvcache"].signature.more_keywords


def test_the_first_folder_with_the_component_wins(tmp_path: Path) -> None:
    install(tmp_path / "b", "2.8.3", {"flash_attn/__init__.py": ""})
    install(tmp_path / "c", "2.6.3", {"flash_attn/__init__.py": ""})
    folders = [str(tmp_path / "absent"), str(tmp_path / "b"), str(tmp_path / "c")]
    assert read_components(folders, all_builds())["flash_attn"].version == "2.8.3"


@pytest.mark.parametrize(
    ("init", "unknown", "missing"),
    [
        ("flash_attn_varlen_func = compiled.run\n", "cannot be followed", False),
        ("from ._C import flash_attn_varlen_func\n", "more than one|outside", False),
        ("@wrap\ndef flash_attn_varlen_func(q): ...\n", "decorator `wrap`", False),
        ("class flash_attn_varlen_func: ...\n", "a class", False),
        ("from .lost import *\n", "more than one|outside", False),
        ("def __getattr__(name): ...\n", "does not define", False),
        ("x = 1\n", "", True),
    ],
)
def test_what_is_not_seen_is_unknown_and_never_unsupported(
    tmp_path: Path, init: str, unknown: str, missing: bool
) -> None:
    install(tmp_path, "2.8.3", {"flash_attn/__init__.py": init})
    found = read_components([str(tmp_path)], all_builds())["flash_attn"]
    name = "flash_attn_varlen_func"
    assert name not in found.callables
    if missing:
        assert name in found.missing
    else:
        assert name not in found.missing
        assert any(part in found.unknown[name] for part in unknown.split("|"))


def test_a_namespace_that_is_there_is_no_flash_attn(tmp_path: Path) -> None:
    install(tmp_path / "x", "2.8.3", {})
    cute = tmp_path / "y" / "flash_attn" / "cute"
    cute.mkdir(parents=True)
    (cute / "__init__.py").write_text("def flash_attn_varlen_func(): ...\n")
    assert not read_components([str(tmp_path / "y")], all_builds())
    only_metadata = read_components([str(tmp_path / "x")], all_builds())["flash_attn"]
    assert only_metadata.unknown["flash_attn_varlen_func"] == "its module has no Python source"


def test_version_from_the_folder_name_where_metadata_has_none(tmp_path: Path) -> None:
    (tmp_path / "Flash_Attn-2.8.3-py3.11.egg-info").mkdir()
    (tmp_path / "flash_attn_other-1.dist-info").mkdir()
    assert distribution_version(str(tmp_path), ["flash-attn"]) == "2.8.3"
    assert distribution_version(str(tmp_path), ["absent"]) == ""
    assert distribution_version(str(tmp_path / "absent"), ["flash-attn"]) == ""


def test_the_installed_signature_decides(
    tmp_path: Path, make_snapshot: Callable[..., Snapshot]
) -> None:
    installed = standin(tmp_path, "2.8.3+local.1")
    options = CheckOptions(installed=installed, builds={"flash_attn": Build("1.0", "configured")})
    result = check(make_snapshot({"a.py": CALL}), options)
    assert [(f.code, f.location.line, f.severity) for f in result.findings] == [
        ("ATT101", 6, Severity.ERROR),
        ("ATT104", 7, Severity.ERROR),
    ]
    assert f"{tmp_path}/flash_attn/flash_attn_interface.py line 7" in result.findings[0].origin
    assert "contract upstream-2" in result.findings[1].origin
    verdicts = [c.verdict for c in result.calls]
    assert verdicts == [
        CallVerdict.CONFORMS,
        CallVerdict.VIOLATES,
        CallVerdict.VIOLATES,
        CallVerdict.CONFORMS,
    ]


def test_what_is_returned_is_due_for_revalidation_on_an_unseen_version(
    tmp_path: Path, make_snapshot: Callable[..., Snapshot]
) -> None:
    installed = standin(tmp_path, "2.6.3+metax9")
    result = check(make_snapshot({"a.py": CALL}), CheckOptions(installed=installed))
    assert [(f.code, f.severity) for f in result.findings] == [
        ("ATT101", Severity.ERROR),
        ("ATT104", Severity.WARNING),
    ]
    assert "due for revalidation on 2.6.3+metax9" in result.findings[1].origin


def test_an_import_that_the_installed_module_cannot_serve(
    tmp_path: Path, make_snapshot: Callable[..., Snapshot]
) -> None:
    install(tmp_path, "2.8.3", {"flash_attn/__init__.py": "def flash_attn_varlen_func(q): ...\n"})
    installed = read_components([str(tmp_path)], all_builds())
    guarded = (
        "try:\n    from flash_attn import flash_attn_with_kvcache\nexcept ImportError:\n    pass\n"
    )
    files = {
        "bad.py": "from flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache\n",
        "bare.py": "def f():\n    from flash_attn import flash_attn_with_kvcache\n",
        "guarded.py": guarded,
        "bad_guard.py": guarded.replace("ImportError", "KeyError"),
        "good.py": "from flash_attn import flash_attn_varlen_func\n",
    }
    result = check(make_snapshot(files), CheckOptions(installed=installed))
    assert [(f.code, f.location.path, f.location.line) for f in result.findings] == [
        ("ATT106", "bad.py", 1),
        ("ATT106", "bad_guard.py", 2),
        ("ATT106", "bare.py", 2),
    ]
    assert not check(make_snapshot(files), CheckOptions()).findings


def test_an_unknown_signature_leaves_the_record(
    tmp_path: Path, make_snapshot: Callable[..., Snapshot]
) -> None:
    init = "from ._C import flash_attn_varlen_func, flash_attn_with_kvcache\n"
    install(tmp_path, "2.6.3+metax3.8.2.2torch2.10", {"flash_attn/__init__.py": init})
    installed = read_components([str(tmp_path)], all_builds())
    text = CALL.replace("novel=1", "out=q")
    result = check(make_snapshot({"a.py": text}), CheckOptions(installed=installed))
    assert [
        (f.code, f.location.line, f.severity.value, f.level.value) for f in result.findings
    ] == [
        ("ATT101", 5, "error", "recorded"),
        ("ATT104", 7, "error", "recorded"),
        ("ATT101", 8, "warning", "source-inspected"),
    ]


def test_reads_methods_and_initialisers_of_a_component_s_classes(
    tmp_path: Path, make_snapshot: Callable[..., Snapshot]
) -> None:
    """A stand-in for flashinfer whose wrapper is decorated by one that says what it stands for."""
    module = (
        "import functools\n\n\n"
        "def logged(func=None, *, trace=None):\n"
        "    def decorate(f):\n"
        "        @functools.wraps(f)\n"
        "        def call(*args, **kwargs):\n            return f(*args, **kwargs)\n\n"
        "        return call\n\n    return decorate if func is None else decorate(func)\n\n\n"
        "def changed(func):\n    return lambda *args, **kwargs: func(1, *args, **kwargs)\n\n\n"
        "class BatchPrefillWithPagedKVCacheWrapper:\n"
        "    def __init__(self, workspace, layout='NHD'): ...\n\n"
        "    @logged(trace=1)\n    def plan(self, indptr, *, novel=None): ...\n\n"
        "    @changed\n    def run(self, q, cache): ...\n"
    )
    for name, text in {"prefill": module, "__init__": "from .prefill import *\n"}.items():
        path = tmp_path / "flashinfer" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    found = read_components([str(tmp_path)], all_builds())["flashinfer"]
    wrapper = "BatchPrefillWithPagedKVCacheWrapper"
    assert str(found.callables[wrapper].signature) == "(workspace, layout='NHD')"
    assert str(found.callables[f"{wrapper}.plan"].signature) == "(indptr, *, novel=None)"
    assert "decorator `changed`" in found.unknown[f"{wrapper}.run"]
    compiled = "BatchDecodeWithPagedKVCacheWrapper._cached_module.plan"
    assert "made when the component runs" in found.unknown[compiled]
    call = (
        f"import flashinfer\n\nw = flashinfer.{wrapper}(1, kv_layout='HND')\n"
        "w.plan(1, novel=2)\nw.plan(1, fixed_split_size=2)\n"
    )
    result = check(make_snapshot({"a.py": call}), CheckOptions(installed={"flashinfer": found}))
    lines = [(f.code, f.location.line, f.severity) for f in result.findings]
    assert lines == [("ATT101", 3, Severity.ERROR), ("ATT101", 5, Severity.ERROR)]
