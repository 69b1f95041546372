"""What only a whole process shows: devices, Triton's interpreter, adapters of the user."""

import re

import pytest

from attngate.gpu_runner.worker import candidate, wire
from attngate.gpu_runner.worker.adapters.signature import DoesNotFitError
from attngate.gpu_runner.worker.target import LoadError

from .conftest import Worker

CODE = """
def run(x, mode, out=None, cache=None, scratch=None):
    return x * 2
"""
TRITON = """
import torch, triton
import triton.language as tl

@triton.jit
def double(x, out, stride, N: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, N)
    value = tl.load(x + row * stride + at, mask=at < 6)
    tl.store(out + row * 6 + at, value + value, mask=at < 6)

def run(x, mode):
    out = torch.empty(x.shape, dtype=x.dtype)
    double[(x.shape[0],)](x, out, x.stride(0), N=8)
    return out
"""


@pytest.fixture
def run_case(worker_folder, tree, folder):
    """Load a job and run cases of the tiny suite: the load reply and the verdicts."""

    def run(job, cases, **env):
        judge, runner = Worker("judge", worker_folder), Worker("candidate", worker_folder, **env)
        loaded = runner.ask("load", job=job, folder=str(folder))
        verdicts = []
        if loaded["ok"]:
            judge.ask("plan", job=job, folder=str(folder), features=loaded["features"])
            for case in cases:
                calls = judge.ask("prepare", case=case)["calls"]
                outcome = runner.ask("run", case=case, calls=calls)
                verdict = judge.ask("judge", case=case, outcome=outcome)
                verdicts.append(verdict["verdict"])
        judge.end()
        runner.end()
        return loaded, verdicts

    return run


def test_bfloat16_in_tritons_interpreter_says_nothing(run_case, tree):
    tree.write({"plugin/__init__.py": "", "plugin/ops.py": TRITON})
    loaded, verdicts = run_case(tree.job(), ["tiny/good", "tiny/bf16"], TRITON_INTERPRET="1")
    assert "Triton kernels ran in Triton's CPU interpreter" in loaded["disclosures"]
    assert [verdict["kind"] for verdict in verdicts] == ["passed", "not_runnable"]
    assert "8 Triton kernel launches" not in verdicts[0]["message"]
    assert "4 Triton kernel launches" in verdicts[1]["message"]
    assert "bfloat16" in verdicts[1]["message"]


def test_a_missing_device_is_not_runnable(run_case, tree):
    tree.write({"plugin/ops.py": CODE})
    loaded, _ = run_case(tree.job(device="cuda"), [], CUDA_VISIBLE_DEVICES="")
    assert (loaded["ok"], loaded["kind"]) == (False, "not_runnable")
    assert "requires a CUDA device" in loaded["message"]


ADAPTER = """
FEATURES = ["s_aux"]

def call(target, arguments):
    return {"out": target([arguments["x"]])[0]}
"""


def test_the_repositorys_adapter_makes_the_call(run_case, tree):
    tree.write({"plugin/ops.py": "def run(many): return [x * 2 for x in many]"})
    tree.write({"tools/adapter.py": ADAPTER})
    job = tree.job(adapter="tools/adapter.py")
    loaded, verdicts = run_case(job, ["tiny/featured"])
    assert [verdict["kind"] for verdict in verdicts] == ["passed"]
    assert "called through the repository's adapter tools/adapter.py" in loaded["disclosures"]


@pytest.mark.parametrize(
    ("adapter", "error", "message"),
    [
        ("tools/raises.py", LoadError, "tools/raises.py raised ZeroDivisionError"),
        ("tools/empty.py", DoesNotFitError, "tools/empty.py defines no function `call`"),
        ("tools/none.py", DoesNotFitError, "there is no adapter tools/none.py in the tree"),
        ("../outside.py", DoesNotFitError, "there is no adapter ../outside.py in the tree"),
    ],
)
def test_bad_adapters_are_named(tree, adapter, error, message):
    tree.write({"tools/raises.py": "1/0", "tools/empty.py": "x = 1", "../outside.py": ""})
    with pytest.raises(error, match=re.escape(message)):
        candidate.adapter_of(wire.job_from_json(tree.job(adapter=adapter)))


def test_a_candidate_loads_once(tree, folder):
    job = tree.write({"plugin/ops.py": CODE}).job()
    fresh = candidate.Candidate()
    fresh.handle({"op": "load", "job": {**job, "device": "cuda"}, "folder": str(folder)})
    again = fresh.handle({"op": "load", "job": job, "folder": str(folder)})
    assert (again["kind"], again["message"]) == ("internal", "a candidate loads one target only")


def test_code_of_neither_the_tree_nor_the_environment_is_told(run_case, tree, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    stranger = tmp_path / "elsewhere" / "helper_of_nobody.py"
    stranger.write_text("x = 1\n")
    first = f"import sys\nsys.path.insert(0, {str(stranger.parent)!r})\nimport helper_of_nobody\n"
    tree.write({"plugin/__init__.py": "", "plugin/ops.py": first + CODE})
    loaded, _ = run_case(tree.job(), [])
    assert loaded["ok"], loaded
    assert any(str(stranger) in told for told in loaded["disclosures"])
