from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from attngate.validators.check import context_of
from attngate.validators.model import Build, CheckOptions, Level
from attngate.validators.target import TargetTree
from attngate.validators.trace import Hop, find, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from attngate.validators.context import Context
    from attngate.validators.model import Snapshot

TARGET = {
    "vllm/__init__.py": "",
    "vllm/_custom_ops.py": "def reshape_and_cache_flash(key): ...\n",
    "vllm/backend.py": (
        "class Backend: ...\n\n\nclass Builder:\n    def build(self): ...\n\n\n"
        "class Impl:\n    def forward(self, q): ...\n\n"
        "    def do_kv_cache_update(self): ...\n"
    ),
    "vllm/registry.py": "def register_backend(name): ...\n\n\nclass Names:\n    FLASH = 1\n",
}
TREE = {
    "plugin/__init__.py": "",
    "plugin/platform.py": (
        "def get_backend(config):\n    if config.use_mla:\n        return None\n"
        '    return "plugin.backend.MacaFlashBackend"\n'
    ),
    "plugin/kernels.py": (
        "import triton\n\n\n@triton.jit\ndef merge_kernel(x): ...\n\n\n"
        "def merge(x):\n    merge_kernel[(1,)](x)\n"
    ),
    "plugin/wrapper.py": (
        "try:\n    from flash_attn import flash_attn_varlen_func\n"
        "except ImportError:\n    flash_attn_varlen_func = None\n\n\n"
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
        "from plugin.wrapper import attention, attention_fp8\n"
        "from vllm import _custom_ops as ops\n"
        "from vllm.backend import Backend, Builder, Impl\n"
        "from vllm.registry import Names, register_backend\n\n\n"
        "@register_backend(Names.FLASH)\nclass MacaFlashBackend(Backend):\n"
        "    @staticmethod\n    def get_impl_cls():\n        return FlashImpl\n\n"
        "    @staticmethod\n    def get_builder_cls():\n        return FlashBuilder\n\n\n"
        "class FlashBuilder(Builder): ...\n\n\n"
        "class FlashImpl(Impl):\n"
        "    def __init__(self, prefill: Prefill):\n        self.prefill = prefill\n\n"
        "    def forward(self, q, metadata):\n"
        "        if metadata.num_prefills > 0:\n            self.prefill.run(q)\n"
        "        if metadata.use_fp8:\n            return attention_fp8(q)\n"
        "        if self.dcp_world_size > 1:\n            merge(q)\n"
        "        else:\n            torch.ops._C.paged_attention(q)\n"
        "        self._again(q)\n        metadata.decode_attention(q)\n"
        "        return len(q)\n\n"
        "    def _again(self, q):\n        self.forward(q, None)\n        ops.reshape_and_cache_flash(q)\n"
    ),
}


@pytest.fixture
def context(tmp_path: Path, make_snapshot: Callable[..., Snapshot]) -> Context:
    for path, text in TARGET.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    builds = {"flash_attn": Build("2.6.3+metax3.8.2.2torch2.10", "configured")}
    options = CheckOptions(target=TargetTree(str(tmp_path), "1.0"), builds=builds)
    return context_of(make_snapshot(TREE), options)


def walk(hop: Hop) -> Iterator[Hop]:
    yield hop
    for step in hop.steps:
        yield from walk(step)


def traced(context: Context, name: str) -> list[Hop]:
    (ref,) = find(context, name).found
    return list(walk(trace(context, ref)))


@pytest.mark.parametrize(
    "name", ["FLASH", "MacaFlashBackend", "macaflashbackend", "plugin.backend.MacaFlashBackend"]
)
def test_a_backend_by_its_registration_or_its_class(context: Context, name: str) -> None:
    (ref,) = find(context, name).found
    assert str(ref) == "plugin.backend.MacaFlashBackend"


def test_an_unknown_name_tells_what_is_close(context: Context) -> None:
    asked = find(context, "macaflashbakend")
    assert asked.found == ()
    assert "macaflashbackend" in asked.close


def test_registration_by_decorator_and_by_path_with_its_condition(context: Context) -> None:
    found = [h for h in traced(context, "FLASH") if h.kind == "registration"]
    assert [h.name for h in found] == [
        "@register_backend(Names.FLASH)",
        '"plugin.backend.MacaFlashBackend"',
    ]
    assert found[1].place == "plugin/platform.py line 4"
    assert found[1].conditions == ("not (config.use_mla)",)


def test_every_kind_of_end_with_the_conditions_on_the_way(context: Context) -> None:
    hops = {(h.kind, h.name): h for h in traced(context, "FLASH")}
    component = hops["component", "flash_attn.flash_attn_varlen_func"]
    assert component.place == "plugin/wrapper.py line 8"
    assert component.level is Level.RECORDED
    assert "contract metax-2" in component.origin
    prefill = hops["function", "FlashPrefill.run"]
    assert prefill.conditions == ("metadata.num_prefills > 0",)
    assert "prefill" in prefill.tags
    refused = hops["refused", "attention_fp8"]
    assert refused.conditions == ("metadata.use_fp8",)
    kernel = hops["triton kernel", "plugin.kernels.merge_kernel"]
    assert kernel.place == "plugin/kernels.py line 9"
    dcp = hops["function", "merge"]
    assert dcp.conditions == ("not (metadata.use_fp8)", "self.dcp_world_size > 1")
    assert "DCP" in dcp.tags
    operator = hops["torch operator", "_C.paged_attention"]
    assert operator.conditions[-1] == "not (self.dcp_world_size > 1)"
    target = hops["target", "vllm._custom_ops.reshape_and_cache_flash"]
    assert target.origin == "vllm 1.0"
    unknown = hops["unknown", "metadata.decode_attention"]
    assert unknown.level is Level.UNTESTED
    assert unknown.note


def test_inherited_methods_are_the_targets_and_a_cycle_ends(context: Context) -> None:
    hops = traced(context, "FLASH")
    inherited = [h for h in hops if h.note == "inherited"]
    assert [h.name for h in inherited] == ["Builder.build", "Impl.do_kv_cache_update"]
    assert len(hops) < 40


def test_a_function_by_its_name(context: Context) -> None:
    names = [h.name for h in traced(context, "plugin.wrapper.attention")]
    assert names == ["attention", "flash_attn.flash_attn_varlen_func"]
