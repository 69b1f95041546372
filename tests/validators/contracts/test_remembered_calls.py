"""A remembered check says what a fresh one says, also where a call rests on other files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from attngate.validators.check import check
from attngate.validators.memory import Memory
from attngate.validators.model import Build, CheckOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from attngate.validators.model import Snapshot

OPTIONS = CheckOptions(
    ignore=frozenset(["ATT208"]),
    builds={
        "flash_attn": Build("2.6.3+metax3.8.2.2torch2.10", "configured"),
        "flash_mla": Build("1.0.1+metax3.5.3.9torch2.8", "configured"),
        "flashinfer": Build("0.2.6+metax3.5.3.9torch2.8", "configured"),
    },
)
HOLDER = (
    "from flashinfer import BatchDecodeWithPagedKVCacheWrapper as Wrapper\n\n\n"
    "class Holder:\n    wrapper: Wrapper\n"
)
FORWARD = (
    "from flash_attn import flash_attn_varlen_func\n\n\n"
    "def attend(q, **kwargs):\n    return flash_attn_varlen_func(q=q, **kwargs)\n"
)
HANDS_ON = (
    "from flash_attn import flash_attn_varlen_func\n\n\n"
    "def attend(q, cu):\n"
    "    out, lse, _ = flash_attn_varlen_func(\n"
    "        q, q, q, cu, cu, 1, 1, return_attn_probs=True\n    )\n"
    "    return out, lse.t()\n"
)
TREE = {
    "plugin/__init__.py": "",
    "plugin/holder.py": HOLDER,
    "plugin/forward.py": FORWARD,
    "plugin/lse.py": HANDS_ON,
    "plugin/sparse.py": (
        "from flash_mla import flash_mla_sparse_fwd as f\n\n\n"
        "def g(q, length):\n    return f(q, q, q, 1.0, topk_length=length)\n"
    ),
    "plugin/caller.py": (
        "from plugin.forward import attend\nfrom plugin.holder import Holder\n\n\n"
        "def run(q, holder: Holder):\n"
        "    holder.wrapper.plan(1, 2, 3, 4, 5, 6, 7, seq_lens=1)\n"
        "    return attend(q, fa_version=2)\n"
    ),
    "plugin/merge.py": (
        "from plugin.lse import attend\n"
        "from vllm.v1.attention.ops.merge_attn_states import merge_attn_states\n\n\n"
        "def merge(out, q, cu):\n"
        "    one, lse = attend(q, cu)\n"
        "    merge_attn_states(out, one, lse, one, lse)\n"
    ),
}
EDITS = {
    "nothing": ({}, 5),
    "a wrapper becomes another one": (
        {"plugin/holder.py": HOLDER.replace("Wrapper as", "Wrapper as Other, List as")},
        4,
    ),
    "keywords stay inside": ({"plugin/forward.py": FORWARD.replace(", **kwargs)\n", ")\n")}, 5),
    "a keyword is taken out": (
        {
            "plugin/forward.py": FORWARD.replace(
                "    return", '    kwargs.pop("fa_version", 2)\n    return'
            )
        },
        4,
    ),
    "a layout changes behind a function": (
        {"plugin/lse.py": HANDS_ON.replace("lse.t()", "lse")},
        3,
    ),
    "a name tells another generation": (
        {"plugin/new.py": "from flash_mla import FlashMLASchedMeta\n"},
        4,
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_elsewhere_counts(make_snapshot: Callable[..., Snapshot], edit: str) -> None:
    changes, count = EDITS[edit]
    memory = Memory()
    before, after = make_snapshot(TREE), make_snapshot(TREE | changes)
    first = check(before, OPTIONS, memory)
    again, fresh = check(after, OPTIONS, memory), check(after, OPTIONS)
    assert (again.findings, again.calls) == (fresh.findings, fresh.calls)
    assert check(before, OPTIONS, memory).findings == first.findings
    codes = [f.code for f in fresh.findings if f.code < "ATT2"]
    assert len(codes) == count, codes
