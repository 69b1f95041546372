"""A suite of one line of mathematics, so that every structural check can be driven by a mode.

The target gets x [4, 6] float32, the name of a mode, and what the mode needs; it gives 2 * x.
"""

import torch

from attngate.gpu_runner.worker import tensors
from attngate.gpu_runner.worker.registry import Call, CaseSpec, OutputSpec, TensorArg, suite
from attngate.gpu_runner.worker.wire import Measurement, Verdict, VerdictKind

RETURNING = (
    *("good", "strided", "wrong_values", "wrong_shape", "wrong_dtype", "nothing", "input_changed"),
    *("guard_changed", "unwritten", "custom_op", "reads_memory", "other_bits", "returns_input"),
    *("same_buffer", "other_contents", "raises", "exits", "out_of_memory", "prints", "nested"),
    *("imports_late", "executes_foreign", "infinite", "forks"),
)
IN_PLACE = ("in_place", "in_place_unwritten", "in_place_outside", "in_place_band", "rows")
OTHERS = ("refused", "accepted", "probed", "append", "refill", "workspace", "gpu", "featured")
SHAPE = (4, 6)


@suite("tiny", version=3, adapter="keywords")
class Tiny:
    def plan(self, declaration):
        cases = [CaseSpec(mode, "float32", {"mode": mode}) for mode in RETURNING + IN_PLACE]
        cases += [CaseSpec(mode, "float32", {"mode": mode}) for mode in OTHERS[:6]]
        cases.append(CaseSpec("gpu", "float32", device="cuda"))
        cases.append(CaseSpec("featured", "float32", {"mode": "good"}, needs=("s_aux",)))
        cases.append(CaseSpec("slow", "float32", {"mode": "good"}, tier="full"))
        cases.append(CaseSpec("bf16", "bfloat16", {"mode": "good"}))
        return cases, [("sinks", "not declared")]

    def prepare(self, case, declaration, rng):
        mode = case.axes["mode"]
        x = tensors.guarded(
            torch.randn(SHAPE, generator=rng).to(tensors.dtype_named(case.dtype)), "big"
        )
        if mode in IN_PLACE:
            return [self._in_place(mode, x)]
        special = getattr(self, "_" + mode, None)
        if special is not None:
            return special(x)
        return [self._call("first", mode, x), self._call("second", mode, tensors.guarded(x * 3))]

    def _call(self, id_, mode, x, **more):
        spec = OutputSpec("out", SHAPE, (tensors.dtype_name(x.dtype),))
        return Call(id_, {"mode": mode, "x": x, **more}, (spec,))

    def _strided(self, x):
        wide = torch.full((4, 20), float("nan"))
        wide[:, 3:15:2] = x
        return [self._call("first", "good", wide[:, 3:15:2])]

    def _nested(self, x):
        return [self._call("first", "nested", x, pair=(x, [2, float("-inf")], torch.float32))]

    def _in_place(self, mode, x):
        may_write = None
        if mode == "rows":
            may_write = torch.zeros(SHAPE, dtype=torch.bool)
            may_write[:2] = True
        out = TensorArg(tensors.guarded(torch.zeros(SHAPE)), "output", may_write=may_write)
        spec = OutputSpec("out", SHAPE, ("float32",), argument="out")
        return Call("first", {"mode": mode, "x": x, "out": out}, (spec,))

    def _refused(self, x):
        return [Call("no", {"mode": "raises", "x": x}, expect="refusal")]

    def _accepted(self, x):
        return [Call("no", {"mode": "good", "x": x}, expect="refusal")]

    def _probed(self, x):
        return [Call("maybe", {"mode": "raises", "x": x}, expect="either")]

    def _append(self, x):
        cache = TensorArg(tensors.guarded(torch.zeros(SHAPE)), "inout")
        calls = [Call("one", {"mode": "append", "x": x, "cache": cache})]
        return [*calls, Call("two", {"mode": "append", "x": x, "cache": cache}, after="one")]

    def _refill(self, x):
        two = x.clone()
        two.set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())
        calls = [self._call("one", "address", x), self._call("two", "address", two)]
        calls[1] = Call("two", calls[1].args, calls[1].outputs, after="one", refill=True)
        return calls

    def _workspace(self, x):
        scratch = TensorArg(tensors.guarded(torch.zeros(8)), "workspace")
        return [self._call("first", "workspace", x, scratch=scratch)]

    def judge(self, case, declaration, calls, outcomes):
        worst = 0.0
        for call in calls:
            outcome = outcomes[call.id]
            rows = 2 if call.args["mode"] == "rows" else SHAPE[0]
            for out in outcome.outputs.values():
                off = out[:rows] - 2 * call.args["x"][:rows]
                worst = max(float(off.abs().max()), worst)
            if call.id == "two" and case.axes["mode"] == "append":
                worst = float((outcome.arguments["cache"] - 2 * call.args["x"]).abs().max())
        worst = min(1e30, worst)  # NaN compares false
        measured = Measurement("out", "R1", worst, worst, 24)
        if worst > 0:
            return Verdict(case.id, VerdictKind.WRONG_VALUES, "off", measurements=(measured,))
        return Verdict(case.id, VerdictKind.PASSED, measurements=(measured,))
