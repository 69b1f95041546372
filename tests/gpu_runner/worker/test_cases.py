"""One judge and one candidate drive a target through every fault that the shared checks know."""

import json
import os
from pathlib import Path

import pytest

from .conftest import Tree, Worker

OPS = """
import importlib, os, subprocess, sys
import torch
from torch.library import custom_op

print("noise on stdout while importing")
os.write(2, b"noise on stderr\\n")
BUFFER = torch.zeros(4, 6)
COUNT = [0]
LEAK = []
ADDRESSES = []

@custom_op("plugin::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    out[1:] = x[1:] * 2
    return out

def run(x, mode, out=None, cache=None, scratch=None, pair=None):
    COUNT[0] += 1
    return globals()["do_" + mode](x, out, cache, scratch, pair)

def do_good(x, *_): return x * 2
def do_wrong_values(x, *_): return x * 2 + 1
def do_wrong_shape(x, *_): return (x * 2).t()
def do_wrong_dtype(x, *_): return (x * 2).double()
def do_nothing(x, *_): return None
def do_infinite(x, *_): return x * float("nan")
def do_input_changed(x, *_):
    x[1, 2] += 1
    return x * 2
def do_guard_changed(x, *_):
    torch.empty(0).set_(x.untyped_storage(), 60, (4,), (1,)).fill_(5.0)
    return x * 2
def do_unwritten(x, *_):
    out = torch.empty(4, 6)
    out[:3] = x[:3] * 2
    return out
def do_custom_op(x, *_): return torch.ops.plugin.double(x)
def do_reads_memory(x, *_): return x.new_empty(4, 6) * 0 + x * 2
def do_other_bits(x, *_): return x * 2 + COUNT[0] * 1e-3
def do_returns_input(x, *_): return x.mul_(1)
def do_same_buffer(x, *_): return torch.mul(x, 2, out=BUFFER)
def do_other_contents(x, *_):
    if not LEAK: LEAK.append(x * 2)
    return LEAK[0].clone()
def do_raises(x, *_): raise ValueError("head size 7 is not supported")
def do_exits(x, *_): sys.exit(4)
def do_out_of_memory(x, *_): return torch.empty(1 << 58)
def do_prints(x, *_):
    print("x" * 100000)
    sys.stdout.flush()
    return x * 2
def do_forks(x, *_):
    subprocess.run([sys.executable, "-c", "import os; [os.write(fd, b'junk') for fd in range(3)]"],
                   check=True, close_fds=False)
    return x * 2
def do_nested(x, out, cache, scratch, pair):
    assert isinstance(pair, tuple) and pair[1] == [2, float("-inf")] and pair[2] is torch.float32
    assert pair[0].data_ptr() == x.data_ptr()
    return x * 2
def do_imports_late(x, *_):
    return getattr(importlib.import_module("plugin." + "la" + "te"), "f")(x)
def do_executes_foreign(x, *_):
    import runpy
    return runpy.run_path(os.environ["FOREIGN"])["f"](x)
def do_in_place(x, out, *_): torch.mul(x, 2, out=out)
def do_in_place_unwritten(x, out, *_): out[:, :5] = x[:, :5] * 2
def do_in_place_outside(x, out, *_):
    out.copy_(x * 2)
    torch.empty(0).set_(out.untyped_storage(), 64 + 24, (3,), (1,)).fill_(5.0)
do_in_place_band = do_in_place_outside
def do_rows(x, out, *_): out[:3] = x[:3] * 2
def do_append(x, out, cache, *_): cache += x
def do_address(x, *_):
    ADDRESSES.append(x.data_ptr())
    assert len(ADDRESSES) % 2 or ADDRESSES[-1] == ADDRESSES[-2]
    return x * 2
def do_workspace(x, out, cache, scratch, pair):
    scratch[:6] = x[0]
    return x * 2
"""

EXPECTED = {
    "good": "passed",
    "strided": "passed",
    "nested": "passed",
    "prints": "passed",
    "forks": "passed",
    "in_place": "passed",
    "append": "passed",
    "refill": "passed",
    "workspace": "passed",
    "refused": "passed",
    "wrong_values": "wrong_values",
    "infinite": "wrong_values",
    "other_contents": "wrong_values",
    "wrong_shape": "wrong_shape",
    "wrong_dtype": "wrong_dtype",
    "nothing": "wrong_shape",
    "input_changed": "changed_input",
    "guard_changed": "changed_input",
    "unwritten": "left_unwritten",
    "custom_op": "left_unwritten",
    "reads_memory": "left_unwritten",
    "in_place_unwritten": "left_unwritten",
    "other_bits": "nondeterministic",
    "returns_input": "wrote_outside",
    "same_buffer": "wrote_outside",
    "in_place_outside": "wrote_outside",
    "in_place_band": "wrote_outside",
    "rows": "wrote_outside",
    "raises": "raised",
    "exits": "raised",
    "out_of_memory": "out_of_memory",
    "accepted": "accepted_unsupported",
    "probed": "unsupported",
    "featured": "unsupported",
    "imports_late": "passed",
    "bf16": "passed",
    "executes_foreign": "imported_elsewhere",
}
MESSAGES = {
    "input_changed": "changed x at [1, 2] (an input); 1 of 24 elements",
    "guard_changed": "changed 12 bytes of the memory around x, the first 15 bytes before",
    "in_place_outside": "changed 12 bytes of the memory around out, the first 0 bytes after its last",
    "rows": "changed out at [2, 0] (outside what may be written)",
    "unwritten": "left output 'out' unwritten at [3, 0]; 6 of 24 elements",
    "custom_op": "unwritten at [0, 0]",
    "in_place_unwritten": "left argument 'out' unwritten at [0, 5]; 4 of 24",
    "reads_memory": "depends on what its memory held",
    "returns_input": "shares memory with argument x",
    "same_buffer": "shares memory with the earlier result out of first#1",
    "wrong_shape": "has shape [6, 4], expected [4, 6]",
    "wrong_dtype": "is float64, expected float32",
    "nothing": "returned no output 'out'",
    "raises": "raised ValueError: head size 7 is not supported",
    "exits": "raised SystemExit: 4",
    "featured": "takes no s_aux",
    "probed": "head size 7",
    "executes_foreign": "elsewhere/plugin/late.py",
}


@pytest.fixture(scope="module")
def session(tmp_path_factory, worker_folder):
    """Every case through one pair of processes: id to (candidate's reply, verdict)."""
    base = tmp_path_factory.mktemp("session")
    tree = Tree(base / "tree").write({"plugin/__init__.py": "", "plugin/ops.py": OPS})
    tree.write({"plugin/late.py": "def f(x):\n    return x * 2\n"})
    foreign = base / "elsewhere" / "plugin" / "late.py"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("def f(x):\n    return x * 2\n")
    folder = base / "job"
    folder.mkdir()
    job = tree.job(closure=["plugin/__init__.py", "plugin/ops.py"])
    judge = Worker("judge", worker_folder)
    candidate = Worker("candidate", worker_folder, FOREIGN=str(foreign))
    plan = judge.ask("plan", job=job, folder=str(folder))
    loaded = candidate.ask("load", job=job, folder=str(folder))
    cases = {}
    for name in sorted(EXPECTED, key=lambda name: name == "executes_foreign"):
        case = f"tiny/{name}"
        calls = judge.ask("prepare", case=case)["calls"]
        outcome = candidate.ask("run", case=case, calls=calls)
        cases[name] = (outcome, judge.ask("judge", case=case, outcome=outcome))
    left = os.listdir(folder)
    return {"plan": plan, "loaded": loaded, "cases": cases, "left": left} | {
        "ends": [judge.end(), candidate.end()]
    }


@pytest.mark.parametrize("name", EXPECTED)
def test_each_fault_gets_its_verdict(session, name):
    reply = session["cases"][name][1]
    assert reply["ok"], reply
    verdict = reply["verdict"]
    assert verdict["kind"] == EXPECTED[name], verdict
    assert verdict["case"] == f"tiny/{name}"
    assert MESSAGES.get(name, "") in verdict["message"]


def test_plan_says_what_it_leaves_out(session):
    plan = session["plan"]
    assert plan["ok"]
    assert plan["suite_version"] == 3
    ids = [case["id"] for case in plan["cases"]]
    assert "tiny/good" in ids
    assert "tiny/slow" not in ids
    assert ["tiny/gpu", "needs a CUDA device"] in plan["left_out"]
    assert ["sinks", "not declared"] in plan["left_out"]


def test_load_reports_origin_and_signature(session):
    loaded = session["loaded"]
    assert loaded["ok"], loaded
    assert loaded["signature"].startswith("(x, mode, out=None")
    assert {"x", "mode", "scratch"} <= set(loaded["features"])
    names = {name: where for name, _, where in loaded["modules"]}
    assert names == {"plugin": "plugin/__init__.py", "plugin.ops": "plugin/ops.py"}
    assert loaded["outside_closure"] == []


def test_a_module_loaded_at_run_time_is_reported_outside_the_closure(session):
    assert session["cases"]["good"][0]["outside_closure"] == []
    assert session["cases"]["imports_late"][0]["outside_closure"] == ["plugin/late.py"]


def test_user_output_reaches_the_log_and_not_the_frames(session):
    (judge_code, _), (code, output) = session["ends"]
    assert (judge_code, code) == (0, 0)
    assert "noise on stdout" in output
    assert "noise on stderr" in output
    assert "x" * 1000 in output


def test_files_of_judged_cases_are_removed(session):
    assert session["left"] == []


def test_raised_carries_the_tail_of_the_traceback(session):
    detail = session["cases"]["raises"][1]["verdict"]["detail"]
    assert "plugin/ops.py" in detail
    assert "candidate.py" not in detail


def test_inputs_depend_on_seed_and_case_only(worker_folder, tree, folder):
    tree.write({"plugin/ops.py": OPS})
    judge = Worker("judge", worker_folder)
    seen = []
    for seed, order in ((0, ("good", "prints")), (0, ("prints", "good")), (1, ("good", "prints"))):
        judge.ask("plan", job=tree.job(seed=seed), folder=str(folder))
        files = {}
        for name in order:
            calls = judge.ask("prepare", case=f"tiny/{name}")["calls"]
            data = json.loads((folder / calls).read_text())
            call = data["calls"][0]
            files[name] = [Path(folder, s["file"]).read_bytes() for s in call["storages"].values()]
        seen.append(files)
    assert seen[0] == seen[1]
    assert seen[0] != seen[2]
    bad = judge.ask("plan", job=tree.job(tier="enormous"), folder=str(folder))
    assert (bad["kind"], bad["message"]) == ("unsupported", "there is no tier 'enormous'")
    none = judge.ask("plan", job=tree.job(only=["tiny/nosuch"]), folder=str(folder))
    assert none["kind"] == "unsupported"
    assert "tiny/nosuch: the suite has no such case" in none["message"]
    unknown = judge.ask("plan", job=tree.job(suite="tinny"), folder=str(folder))
    assert "did you mean 'tiny'" in unknown["advice"]
    featured = judge.ask("plan", job=tree.job(), folder=str(folder), features=["x"])
    assert ["tiny/featured", "the callable takes no s_aux"] in featured["left_out"]
    judge.end()
