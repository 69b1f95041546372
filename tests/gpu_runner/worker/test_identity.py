"""What the identity role says of callables, of operators, and of what cannot be imported."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest

from .conftest import Worker

PACKAGE = """
import functools
HAS_SINKS, HAS_FP8, COUNT = True, False, 3

def kernel(q, k, /, scale=None, *, causal=False):
    '''Attention of a stand-in.

    More.'''

class Wrapper:
    def plan(self, indptr, page=16): ...
    @staticmethod
    def free(x): ...

def traced(function):
    @functools.wraps(function)
    def inner(*args, **kwargs): return function(*args, **kwargs)
    return inner

@traced
def wrapped(q, out=None): ...

class Odd:
    def __repr__(self): raise RuntimeError("no repr")

def odd(x=Odd()): ...
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package folder of a new environment with a few stand-in packages."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    site: Path = next(folder.glob("lib/python*/site-packages"))
    for name, text in {
        "standin_kernels": PACKAGE,
        "needs_more": "import not_installed_anywhere",
        "leaves": "raise SystemExit(7)",
        "dies": "import os; print('before the end', flush=True); os._exit(9)",
        "vllm": "raise AssertionError('imported')",
    }.items():
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(text)
    info = site / "standin_kernels-1.2+local.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: standin-kernels\nVersion: 1.2+local\n")
    (info / "top_level.txt").write_text("standin_kernels\n")
    (info / "entry_points.txt").write_text("[vllm.platform_plugins]\nme = standin_kernels:kernel\n")
    return site


@pytest.fixture(scope="module")
def worker(site: Path) -> Worker:
    return Worker("identity", python=str(site.parents[2] / "bin" / "python"))


def test_a_function_is_described_without_being_called(worker: Worker, site: Path) -> None:
    said = worker.ask("describe", paths=["standin_kernels.gone", "standin_kernels.kernel"])
    assert said.pop("signature") == [
        {"name": "q", "kind": "position", "default": None},
        {"name": "k", "kind": "position", "default": None},
        {"name": "scale", "kind": "either", "default": "None"},
        {"name": "causal", "kind": "keyword", "default": "False"},
    ]
    assert said == {
        "ok": True,
        "found": True,
        "path": "standin_kernels.kernel",
        "distribution": "standin-kernels",
        "version": "1.2+local",
        "file": str(site / "standin_kernels" / "__init__.py"),
        "extension": None,
        "module": "standin_kernels",
        "qualname": "kernel",
        "schema": None,
        "returned": None,
        "wrapped": False,
        "doc": "Attention of a stand-in.",
        "platform": {"declared": ["me = standin_kernels:kernel"], "active": None},
        "flags": {"standin_kernels.HAS_SINKS": True, "standin_kernels.HAS_FP8": False},
    }


@pytest.mark.parametrize(
    ("path", "names"),
    [("Wrapper.plan", ["indptr", "page"]), ("Wrapper.free", ["x"]), ("wrapped", ["q", "out"])],
)
def test_a_caller_passes_no_self(worker: Worker, path: str, names: list[str]) -> None:
    said = worker.ask("describe", paths=[f"standin_kernels.{path}"])
    assert [p["name"] for p in said["signature"]] == names
    assert said["wrapped"] == (path == "wrapped")


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("nowhere.f", "absent", "there is no module nowhere"),
        ("standin_kernels.gone", "absent", "standin_kernels has no gone"),
        ("standin_kernels.kernel.gone", "absent", "standin_kernels.kernel has no gone"),
        ("needs_more.f", "broken", "No module named 'not_installed_anywhere'"),
        ("leaves.f", "broken", "SystemExit: 7"),
    ],
)
def test_what_cannot_be_imported_is_data(worker: Worker, path: str, kind: str, words: str) -> None:
    said = worker.ask("describe", paths=[path])
    assert (said["ok"], said["found"]) == (True, False)
    assert said["errors"][0]["kind"] == kind
    assert words in said["errors"][0]["message"]


def test_a_default_without_a_text_and_a_callable_without_a_signature(worker: Worker) -> None:
    assert worker.ask("describe", paths=["standin_kernels.odd"])["signature"][0]["default"] == (
        "<Odd: RuntimeError>"
    )
    assert worker.ask("describe", paths=["builtins.min"])["signature"] is None
    assert worker.ask("try", path="builtins.min", positions=1, keywords=[])["outcome"] == "unknown"


def test_the_library_behind_a_built_in_function(worker: Worker) -> None:
    said = worker.ask("describe", paths=["_ctypes.sizeof"])
    assert said["extension"].endswith(".so")
    assert said["extension"] == said["file"]


@pytest.mark.parametrize(
    ("positions", "keywords", "outcome"),
    [
        (2, [], "taken"),
        (2, ["causal"], "taken"),
        (3, ["causal"], "taken"),
        (4, [], "refused"),
        (2, ["out"], "refused"),
        (0, ["q", "k"], "refused"),
    ],
)
def test_a_combination_is_tried_by_binding(
    worker: Worker, positions: int, keywords: list[str], outcome: str
) -> None:
    said = worker.ask("try", path="standin_kernels.kernel", positions=positions, keywords=keywords)
    assert said["outcome"] == outcome
    assert bool(said["message"]) == (outcome == "refused")


def test_an_interpreter_without_torch_is_enough_and_vllm_stays_unimported(worker: Worker) -> None:
    assert worker.ask("describe", paths=["torch.nn.Linear"])["found"] is False
    said = worker.ask("describe", paths=["vllm.platforms.x"])
    assert said["errors"] == [
        {
            "path": "vllm.platforms.x",
            "kind": "broken",
            "message": "import vllm: AssertionError: imported",
        }
    ]
    assert worker.ask("nonsense")["ok"] is False


def test_a_component_that_ends_the_process_gives_no_answer(site: Path) -> None:
    python = str(site.parents[2] / "bin" / "python")
    worker = Worker("identity", python=python)
    with pytest.raises(AssertionError, match="before the end"):
        worker.ask("describe", paths=["dies.f"])
    worker.close()
    assert worker.process.returncode == 9


@pytest.fixture(scope="module")
def torch_worker() -> Worker:
    return Worker("identity")


def test_an_operator_of_torch_has_a_schema(torch_worker: Worker) -> None:
    said = torch_worker.ask("describe", paths=["torch.ops.aten._flash_attention_forward"])
    assert said["schema"].startswith("aten::_flash_attention_forward(Tensor query, Tensor key,")
    assert (said["distribution"], said["returned"]) == ("torch", 5)
    assert said["extension"].endswith(".so")
    assert said["signature"][10] == {"name": "scale", "kind": "keyword", "default": "None"}
    for path in ("torch.ops.aten.no_such_op", "torch.ops.no_such_namespace.f"):
        assert torch_worker.ask("describe", paths=[path])["errors"][0]["kind"] == "absent"


def test_an_operator_is_called_without_a_kernel(torch_worker: Worker) -> None:
    path = "torch.ops.aten._flash_attention_forward"
    taken = torch_worker.ask("try", path=path, positions=10, keywords=["scale"])
    assert taken == {"ok": True, "outcome": "taken", "message": "", "device": "meta", "returned": 5}
    refused = torch_worker.ask("try", path=path, positions=10, keywords=["s_aux"])
    assert refused["outcome"] == "refused"
    assert "'s_aux'" in refused["message"]
    # Nine arguments are too few. That is no answer about a keyword, so it is not called a refusal.
    assert torch_worker.ask("try", path=path, positions=9, keywords=[])["outcome"] == "failed"


def test_the_active_platform_is_named_where_vllm_is_asked_for(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False, symlinks=True)
    site = next(tmp_path.glob("lib/python*/site-packages"))
    (site / "vllm").mkdir()
    (site / "vllm" / "__init__.py").touch()
    (site / "vllm" / "platforms.py").write_text(
        "class StandIn: ...\n_current_platform = None\n"
        "def __getattr__(name):\n    global _current_platform\n    _current_platform = StandIn()\n"
        "    return _current_platform\n"
    )
    (site / "vllm" / "ops.py").write_text("import vllm.platforms\ndef f(x): ...\n")
    worker = Worker("identity", python=str(tmp_path / "bin" / "python"))
    said = worker.ask("describe", paths=["vllm.ops.f"])
    assert said["platform"] == {"declared": [], "active": "vllm.platforms.StandIn"}
    assert worker.end()[0] == 0
