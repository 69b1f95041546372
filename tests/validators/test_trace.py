from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from attngate.validators.check import context_of
from attngate.validators.model import Build, CheckOptions, Level
from attngate.validators.target import TargetTree
from attngate.validators.trace import EntryPoint, Hop, find, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from attngate.validators.context import Context
    from attngate.validators.model import Snapshot

TARGET = {
    "vllm/__init__.py": "",
    "vllm/_custom_ops.py": (
        "import torch\n\n\ndef reshape_and_cache_flash(key):\n"
        "    torch.ops._C_cache_ops.reshape_and_cache_flash(key)\n"
    ),
    "vllm/ops/__init__.py": "",
    "vllm/ops/common.py": (
        "import triton\n\n\n@triton.jit\ndef _correct_kernel(x): ...\n\n\n"
        "class Launcher:\n    def call(self, kernel, x):\n        kernel[(1,)](x)\n\n\n"
        "def gather_and_reduce(x, launcher: Launcher):\n    launcher.call(_correct_kernel, x)\n\n\n"
        "def all_to_all(x):\n    _correct_kernel[(1,)](x)\n"
    ),
    "vllm/backend.py": (
        "class Backend: ...\n\n\nclass Builder:\n"
        "    def build_for_cudagraph_capture(self, m):\n        return self.build(m)\n\n\n"
        "class Impl:\n    def process_weights_after_loading(self): ...\n"
    ),
    "vllm/custom_op.py": (
        "class CustomOp:\n    def forward(self, *args):\n        return self.method(*args)\n\n"
        "    def forward_oot(self, *args): ...\n\n\n"
        "class QuantFP8(CustomOp):\n    def forward_native(self, q): ...\n"
    ),
    "vllm/registry.py": (
        "class Names:\n    FLASH = 1\n    OTHER = 2\n\n\n"
        "def register_backend(name, class_path=None): ...\n"
    ),
    "vllm/platforms/__init__.py": "",
    "vllm/platforms/interface.py": "class Platform: ...\n",
    "vllm/selector.py": (
        "from vllm.platforms import current_platform\n\n\n"
        "def get_attn_backend(config):\n    return current_platform.get_attn_backend_cls(config)\n"
    ),
    "vllm/layer.py": (
        "import torch\n\n\nclass Attention:\n    def __init__(self, backend):\n"
        "        impl_cls = backend.get_impl_cls()\n        self.impl = impl_cls()\n\n"
        "    def forward(self, q):\n        if self.direct:\n            self.impl.forward(q)\n"
        "        else:\n            torch.ops.vllm.attention_op(q)\n\n\n"
        "def attention_op(q):\n    layer = find_layer()\n    layer.impl.do_kv_cache_update(q)\n\n\n"
        "direct_register_custom_op(\n"
        '    op_name="attention_op",\n    op_func=attention_op,\n)\n\n\n'
        "class Latent:\n    def __init__(self, backend):\n"
        "        self.impl = backend.get_impl_cls()()\n\n"
        "    def forward(self, q):\n        self.impl.forward_mqa(q)\n"
    ),
    "vllm/runner.py": (
        "class Runner:\n    def prepare(self, backend):\n        return backend.get_builder_cls()()\n"
    ),
}
TREE = {
    "csrc/bindings.cpp": (
        "TORCH_LIBRARY_EXPAND(_C_cache_ops, ops) {\n"
        '  ops.def("reshape_and_cache_flash(Tensor key) -> ()");\n}\n'
    ),
    "plugin/__init__.py": (
        'def register():\n    return "plugin.platform.MacaPlatform"\n\n\n'
        "def register_layers():\n    import plugin.layers\n"
    ),
    "plugin/layers.py": "import plugin.norm\n",
    "plugin/norm.py": (
        "import torch\nfrom vllm.layer import Attention\n\nfrom plugin.kernels import merge\n\n\n"
        "@Attention.register_oot\nclass Norm(Attention):\n"
        "    def forward_oot(self, x):\n        merge(x)\n\n"
        "    def forward_native(self, x):\n        if x.is_int8:\n"
        "            impl = torch.ops.vllm.attention_op\n        else:\n"
        "            impl = torch.ops._C.norm\n        return impl(x)\n"
    ),
    "plugin/platform.py": (
        "from vllm.platforms.interface import Platform\n"
        "from vllm.registry import Names, register_backend\n\n\n"
        "def register_backends():\n"
        '    register_backend(Names.FLASH, class_path="plugin.backend.MacaFlashBackend")\n\n\n'
        "def priorities(use_mla):\n    if use_mla:\n        return [Names.OTHER]\n"
        "    return [Names.OTHER, Names.FLASH]\n\n\n"
        "class Base(Platform):\n    @classmethod\n    def import_kernels(cls):\n"
        "        import mcoplib._C\n\n    @classmethod\n"
        "    def get_attn_backend_cls(cls, config):\n        register_backends()\n"
        "        if config.selected is None:\n            return priorities(config.use_mla)\n\n\n"
        "class WithLibrary(Base): ...\n\n\nclass Without(Base): ...\n\n\n"
        "MacaPlatform = WithLibrary if found else Without\n"
    ),
    "plugin/kernels.py": (
        "import triton\n\n\n@triton.jit\ndef merge_kernel(x): ...\n\n\n"
        "def merge(x):\n    merge_kernel[(1,)](x)\n"
    ),
    "plugin/dummy.py": (
        "class dummy_ops:\n    @staticmethod\n"
        "    def get_scheduler_metadata(x):\n        return None\n"
    ),
    "plugin/wrapper.py": (
        "from plugin.dummy import dummy_ops\n\n"
        "try:\n    from flash_attn import flash_attn_varlen_func\n"
        "except ImportError:\n    flash_attn_varlen_func = None\n\n"
        "get_scheduler_metadata = dummy_ops.get_scheduler_metadata\n\n\n"
        "def attention(q, **kwargs):\n    return flash_attn_varlen_func(q, q, q, q, q, 1, 1)\n\n\n"
        "def attention_fp8(q):\n    raise NotImplementedError\n"
    ),
    "plugin/prefill.py": (
        "from abc import ABC, abstractmethod\n\nfrom plugin.wrapper import attention\n\n\n"
        "class Prefill(ABC):\n    @abstractmethod\n    def run(self, q): ...\n\n\n"
        "class FlashPrefill(Prefill):\n    def run(self, q):\n        return attention(q)\n"
    ),
    "plugin/backend.py": (
        "import torch\n\n"
        "from plugin.kernels import merge\nfrom plugin.prefill import Prefill\n"
        "from plugin.wrapper import attention, attention_fp8, get_scheduler_metadata\n"
        "from vllm import _custom_ops as ops\n"
        "from vllm.backend import Backend, Builder, Impl\n"
        "from vllm.custom_op import QuantFP8\n"
        "from vllm.ops.common import all_to_all, gather_and_reduce\n"
        "from vllm.registry import Names, register_backend\n\n\n"
        "@register_backend(Names.FLASH)\nclass MacaFlashBackend(Backend):\n"
        "    @staticmethod\n    def get_impl_cls():\n        return FlashImpl\n\n"
        "    @staticmethod\n    def get_builder_cls():\n        return FlashBuilder\n\n\n"
        "class FlashBuilder(Builder):\n    def build(self, m):\n"
        "        def schedule(n):\n            return get_scheduler_metadata(n)\n\n"
        "        if m.num_decodes > 0:\n            return schedule(1)\n\n\n"
        "class ConcatQuant(QuantFP8):\n    def forward_oot(self, q):\n"
        "        raise NotImplementedError\n\n"
        "    def forward_native(self, q):\n        merge(q)\n\n\n"
        "class FlashImpl(Impl):\n"
        "    def __init__(self, prefill: Prefill, a2a):\n        self.prefill = prefill\n"
        "        self.combine = all_to_all if a2a else gather_and_reduce\n"
        "        self.quant = ConcatQuant()\n\n"
        "    def forward(self, q, metadata):\n"
        "        if metadata.num_prefills > 0:\n            self.prefill.run(q)\n"
        "        if not metadata.use_cascade:\n"
        "            if metadata.use_fp8:\n                return attention_fp8(q)\n"
        "            else:\n                return attention(q)\n"
        "        if self.dcp_world_size > 1:\n            self.combine(q)\n"
        "        else:\n            torch.ops._C.paged_attention(q)\n"
        "        self._again(q)\n        metadata.decode_attention(q)\n"
        "        self.quant(q)\n        return len(q)\n\n"
        "    def _again(self, q):\n        self.forward(q, None)\n        merge(q)\n\n"
        "    def do_kv_cache_update(self, q):\n        ops.reshape_and_cache_flash(q)\n"
    ),
    "plugin/deep.py": "\n\n".join(
        [f"def step{n}(x):\n    return step{n + 1}(x)\n" for n in range(20)]
        + ["def step20(x):\n    return x\n"]
    ),
}
ENTRY_POINTS = [
    EntryPoint("vllm.platform_plugins", "maca", "plugin:register", "pyproject.toml line 3"),
    EntryPoint("vllm.general_plugins", "layers", "plugin:register_layers", "pyproject.toml line 5"),
]


@pytest.fixture
def context(tmp_path: Path, make_snapshot: Callable[..., Snapshot]) -> Context:
    for path, text in TARGET.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    builds = {"flash_attn": Build("2.6.3+metax3.8.2.2torch2.10", "configured")}
    options = CheckOptions(target=TargetTree(str(tmp_path), "1.0"), builds=builds)
    return context_of(make_snapshot(TREE), options)


@pytest.fixture
def flash(context: Context) -> Hop:
    (ref,) = find(context, "FLASH").found
    return trace(context, ref, ENTRY_POINTS)


def walk(hop: Hop) -> Iterator[Hop]:
    yield hop
    for step in hop.steps:
        yield from walk(step)


def ways(hop: Hop, kind: str) -> list[list[str]]:
    """Names on the way to every hop of a kind."""
    if hop.kind == kind:
        return [[hop.name]]
    return [[hop.name, *rest] for step in hop.steps for rest in ways(step, kind)]


def by_name(hop: Hop) -> dict[tuple[str, str], Hop]:
    found: dict[tuple[str, str], Hop] = {}
    for each in walk(hop):
        found.setdefault((each.kind, each.name), each)
    return found


@pytest.mark.parametrize(
    "name", ["FLASH", "Names.FLASH", "macaflashbackend", "plugin.backend.MacaFlashBackend"]
)
def test_a_backend_by_its_registration_or_its_class(context: Context, name: str) -> None:
    (ref,) = find(context, name).found
    assert str(ref) == "plugin.backend.MacaFlashBackend"


def test_a_module_stands_for_the_backends_in_it(context: Context) -> None:
    assert [str(ref) for ref in find(context, "plugin.backend").found] == [
        "plugin.backend.MacaFlashBackend"
    ]


def test_an_unknown_name_tells_what_is_close(context: Context) -> None:
    asked = find(context, "macaflashbakend")
    assert asked.found == ()
    assert "MacaFlashBackend" in asked.close


def test_ways_from_the_entry_point_to_registration_and_selection(flash: Hop) -> None:
    (registration,) = [w for w in ways(flash, "registration") if len(w) > 2]
    assert registration == [
        "MacaFlashBackend",
        "vllm.platform_plugins: maca = plugin:register",
        "register",
        '"plugin.platform.MacaPlatform" = WithLibrary or Without',
        "Base.get_attn_backend_cls",
        "register_backends",
        'Names.FLASH = "plugin.backend.MacaFlashBackend"',
    ]
    (selection,) = ways(flash, "selection")
    assert selection[-2:] == ["priorities", "Names.FLASH, number 2 of 2"]
    hops = by_name(flash)
    assert hops["selection", "Names.FLASH, number 2 of 2"].conditions == ("not use_mla",)
    assert hops["function", "priorities"].conditions == ("config.selected is None",)
    asked = hops["method", "Base.get_attn_backend_cls"]
    assert asked.note == "called by vllm 1.0, vllm/selector.py line 5"
    assert ("registration", "@register_backend(Names.FLASH)") in hops


def test_a_layer_that_an_import_registers(context: Context) -> None:
    (ref,) = find(context, "Norm").found
    made = trace(context, ref, ENTRY_POINTS)
    (way,) = ways(made, "registration")
    assert way == [
        "Norm",
        "vllm.general_plugins: layers = plugin:register_layers",
        "register_layers",
        "plugin.layers",
        "plugin.norm",
        "@Attention.register_oot",
    ]
    assert ("triton kernel", "plugin.kernels.merge_kernel") in by_name(made)


def test_a_local_name_that_is_one_of_two_by_condition(context: Context) -> None:
    (ref,) = find(context, "Norm").found
    one, other = by_name(trace(context, ref))["function", "impl"].steps
    assert (one.name, one.conditions, one.tags) == (
        "vllm.attention_op",
        ("x.is_int8",),
        ("quantised",),
    )
    assert (other.name, other.conditions, other.tags) == ("_C.norm", ("not x.is_int8",), ())


def test_what_no_entry_point_reaches_says_so(context: Context) -> None:
    (ref,) = find(context, "FLASH").found
    hops = by_name(trace(context, ref))
    registration = hops["registration", 'Names.FLASH = "plugin.backend.MacaFlashBackend"']
    assert "no way from an entry point" in registration.note


def test_every_kind_of_end_with_the_conditions_on_the_way(flash: Hop) -> None:
    hops = by_name(flash)
    component = hops["component", "flash_attn.flash_attn_varlen_func"]
    assert component.place == "plugin/wrapper.py line 12"
    assert component.level is Level.RECORDED
    assert "contract metax-2" in component.origin
    prefill = hops["function", "FlashPrefill.run"]
    assert prefill.conditions == ("metadata.num_prefills > 0",)
    assert prefill.tags == ("prefill",)
    refused = hops["refused", "attention_fp8"]
    assert refused.conditions == ("not metadata.use_cascade", "metadata.use_fp8")
    assert refused.tags == ("fp8",)
    operator = hops["torch operator", "_C.paged_attention"]
    assert operator.conditions == ("metadata.use_cascade", "self.dcp_world_size <= 1")
    assert operator.tags == ("cascade",)
    unknown = hops["unknown", "metadata.decode_attention"]
    assert unknown.level is Level.UNTESTED
    assert unknown.note
    assert ("triton kernel", "plugin.kernels.merge_kernel") in hops


def test_what_is_not_the_case_is_no_tag(flash: Hop) -> None:
    (plain,) = [
        h for h in walk(flash) if h.name == "attention" and "not metadata.use_fp8" in h.conditions
    ]
    assert plain.tags == ()


def test_a_function_that_an_attribute_holds_by_condition(flash: Hop) -> None:
    combine = by_name(flash)["function", "self.combine"]
    assert combine.tags == ("DCP", "cascade")
    one, other = combine.steps
    assert (one.name, one.conditions) == ("all_to_all", ("a2a",))
    assert (other.name, other.conditions) == ("gather_and_reduce", ("not a2a",))
    assert "set at plugin/backend.py line" in one.note
    assert one.origin == "vllm 1.0"


def test_a_kernel_that_is_handed_over_is_named_where_it_is(flash: Hop) -> None:
    hops = by_name(flash)
    launch = hops["unknown", "kernel"]
    assert launch.note.endswith("the caller hands it over")
    handed = [h for h in walk(flash) if "handed over as an argument" in h.note]
    assert [h.name for h in handed] == ["vllm.ops.common._correct_kernel"]
    assert handed[0].place == "vllm 1.0, vllm/ops/common.py line 14"


def test_an_operator_that_the_target_dispatches(flash: Hop) -> None:
    refused, native = by_name(flash)["function", "self.quant"].steps
    assert (refused.kind, refused.name) == ("refused", "ConcatQuant.forward_oot")
    assert native.name == "ConcatQuant.forward_native"
    assert native.tags == ("native",)
    assert "switched off" in native.note


def test_how_a_component_was_imported_is_told_once(flash: Hop) -> None:
    imports = [h for h in walk(flash) if h.kind == "import"]
    assert [(h.name, h.conditions) for h in imports] == [
        ("flash_attn.flash_attn_varlen_func", ()),
        ("flash_attn_varlen_func = None", ("after ImportError",)),
    ]


def test_local_functions_and_stand_ins(flash: Hop) -> None:
    hops = by_name(flash)
    local = hops["function", "schedule"]
    assert local.place == "plugin/backend.py line 30"
    assert local.conditions == ("m.num_decodes > 0",)
    stand_in = hops["stand-in", "dummy_ops.get_scheduler_metadata"]
    assert stand_in.place == "plugin/backend.py line 27"


def test_inherited_methods_lead_back_to_own_ones(flash: Hop) -> None:
    capture = by_name(flash)["method", "Builder.build_for_cudagraph_capture"]
    assert capture.note == "inherited"
    assert capture.tags == ("capture",)
    assert capture.steps[0].note.endswith("shown above")


def test_a_cycle_is_named(flash: Hop) -> None:
    (cycle,) = [h for h in walk(flash) if h.kind == "cycle"]
    assert cycle.name == "FlashImpl.forward"


def test_an_operator_names_its_source_and_the_extensions_that_may_have_it(flash: Hop) -> None:
    operator = by_name(flash)["torch operator", "_C_cache_ops.reshape_and_cache_flash"]
    assert operator.place == "vllm 1.0, vllm/_custom_ops.py line 5"
    declared, imported = operator.steps
    assert declared.place == "csrc/bindings.cpp line 2"
    assert (imported.name, imported.level) == ("mcoplib._C", Level.UNTESTED)


def test_the_layer_that_binds_it_and_no_other(flash: Hop) -> None:
    (layer,) = [h for h in walk(flash) if h.kind == "layer"]
    assert layer.name == "Attention"
    hops = by_name(layer)
    assert hops["binding", "impl.forward"].conditions == ("self.direct",)
    operator = hops["torch operator", "vllm.attention_op"]
    assert operator.conditions == ("not self.direct",)
    assert ways(operator, "binding") == [
        ["vllm.attention_op", "attention_op", "impl.do_kv_cache_update"]
    ]
    builder = by_name(flash)["binding", "get_builder_cls() in Runner.prepare"]
    assert builder.place == "vllm 1.0, vllm/runner.py line 3"


def test_a_function_by_its_name(context: Context) -> None:
    (ref,) = find(context, "plugin.wrapper.attention").found
    names = [h.name for h in walk(trace(context, ref))][:2]
    assert names == ["attention", "flash_attn.flash_attn_varlen_func"]


def test_a_chain_that_is_too_long_is_cut_and_said(context: Context) -> None:
    (ref,) = find(context, "step0").found
    made = trace(context, ref)
    (rest,) = made.steps
    assert (rest.kind, rest.name) == ("unknown", "the rest")
    assert "step" in rest.note


def test_without_a_target_the_tree_is_followed(make_snapshot: Callable[..., Snapshot]) -> None:
    context = context_of(make_snapshot(TREE), CheckOptions())
    (ref,) = find(context, "FLASH").found
    hops = by_name(trace(context, ref, ENTRY_POINTS))
    assert ("component", "flash_attn.flash_attn_varlen_func") in hops
    method = hops["method", "Base.get_attn_backend_cls"]
    assert method.note == "who calls it is not visible: there is no target"
