from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.check import check, context_of
from attngate.validators.index import Ref
from attngate.validators.infer import Instance
from attngate.validators.model import CheckOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from attngate.validators.model import Snapshot


def test_names_that_are_bound_over_and_over_take_no_exponential_time(
    make_snapshot: Callable[..., Snapshot],
) -> None:
    lines = ["def forward(x, flag):", "    for _ in range(9):"]
    for step in range(40):
        lines += [f"        if flag > {step}:", f"            x = x.step{step}(x)"]
    text = "\n".join(
        [*lines, "    flash_attn_varlen_func = x", "    flash_attn_varlen_func(x)", ""]
    )
    check(make_snapshot({"plugin/a.py": text}), CheckOptions())


def test_an_assertion_in_another_branch_says_nothing(
    make_snapshot: Callable[..., Snapshot],
) -> None:
    text = (
        "class One: ...\n\n\nclass Two: ...\n\n\n"
        "def f(x, flag):\n    if flag:\n        assert isinstance(x, One)\n        x.a\n"
        "    else:\n        x.b\n    assert isinstance(x, Two)\n    x.c\n"
    )
    context = context_of(make_snapshot({"plugin/a.py": text}), CheckOptions())
    file = context.files["plugin/a.py"]
    found = {
        node.attr: context.inference.values(file, node.value)
        for node in file.source.names.attributes
        if isinstance(node.value, ast.Name)
    }
    assert found["a"] == (Instance(Ref("class", "plugin.a", "One")),)
    assert found["c"] == (Instance(Ref("class", "plugin.a", "Two")),)
    assert found["b"] != found["a"]
