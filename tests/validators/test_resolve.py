from __future__ import annotations

import ast

import pytest

from attngate.validators.context import SourceFile
from attngate.validators.resolve import (
    Definition,
    External,
    Nothing,
    Partial,
    Resolver,
    TreeModule,
    Unknown,
    Value,
)
from attngate.validators.source import read_source


def _resolver(files: dict[str, str], roots: tuple[str, ...] = ("",)) -> Resolver:
    sources = {p: SourceFile.of(p, p.encode(), read_source(t.encode())) for p, t in files.items()}
    return Resolver(sources, roots)


def _values(
    files: dict[str, str], path: str = "use.py", roots: tuple[str, ...] = ("",)
) -> tuple[Value, ...]:
    """Values of `argument` in the first call `use(argument)` of a file."""
    resolver = _resolver(files, roots)
    module = resolver.module_at(path)
    (call,) = (c for c in module.names.calls if isinstance(c.func, ast.Name) and c.func.id == "use")
    return resolver.values(module, call.args[0])


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("import fa\nuse(fa.run)", "fa.run"),
        ("import fa.sub\nuse(fa.sub.run)", "fa.sub.run"),
        ("import fa.sub as s\nuse(s.run)", "fa.sub.run"),
        ("from fa import run as r\nuse(r)", "fa.run"),
        ("from fa import *\nuse(run)", "fa.run"),
        ("import importlib\nm = importlib.import_module('fa')\nuse(m.run)", "fa.run"),
        ("import fa\nuse(getattr(fa, 'run'))", "fa.run"),
        ("from typing import cast\nimport fa\nuse(cast(int, fa.run))", "fa.run"),
        ("from fa import run\na = b = run\nuse(b)", "fa.run"),
        ("from fa import run\na, b = run, 1\nuse(a)", "fa.run"),
        ("def f():\n    from fa import run\n    def g():\n        use(run)", "fa.run"),
        ("def f():\n    from fa import run\n    use((again := run))", "fa.run"),
        ("class C:\n    from fa import run\n\nuse(C.run)", "fa.run"),
        ("import torch\nuse(torch.ops.vllm.run)", "torch.ops.vllm.run"),
    ],
)
def test_follows_a_name_out_of_the_tree(text: str, path: str) -> None:
    assert _values({"use.py": text}) == (External(path),)


def test_follows_re_exports_of_packages_relative_and_starred() -> None:
    files = {
        "plug/__init__.py": "from .low import *\n",
        "plug/low.py": "if a:\n    from fa import run\nelse:\n    run = None\n",
        "plug/sub/__init__.py": "",
        "plug/sub/use.py": "from .. import run\nfrom ..low import run as other\nuse(run or other)",
    }
    assert set(_values(files, "plug/sub/use.py")) == {External("fa.run"), Nothing()}


def test_a_module_of_the_tree_hides_an_outer_one() -> None:
    files = {"fa/__init__.py": "def run(): ...\n", "use.py": "import fa\nuse(fa.run)"}
    (value,) = _values(files)
    assert isinstance(value, Definition)
    assert value.file == "fa/__init__.py"
    assert _values({"fa/x/y.py": "", "use.py": "import fa\nuse(fa.x)"}) == (TreeModule("fa.x"),)


def test_import_roots_give_modules_their_names() -> None:
    files = {
        "src/plug/low.py": "from fa import run\n",
        "src/plug/use.py": "from plug.low import run\nuse(run)",
    }
    assert _values(files, "src/plug/use.py", ("src",)) == (External("fa.run"),)
    assert _values(files, "src/plug/use.py", ("",)) == (External("plug.low.run"),)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (
            "from fa import run\nclass A:\n    def __init__(s):\n        s.f = run\n    def g(s):\n        use(s.f)",
            {"fa.run"},
        ),
        (
            "import fa, fb\nclass A:\n    def i(s, x):\n        s.f = fa.run\n        s.f = fb.run\n    def g(s):\n        use(s.f)",
            {"fa.run", "fb.run"},
        ),
        (
            "from fa import run\nclass A:\n    f = staticmethod(run)\n    def g(s):\n        use(s.f)",
            {"fa.run"},
        ),
        ("from fa import run\nclass A:\n    f = run\n    def g(s):\n        use(s.f)", {"Unknown"}),
        (
            "from fa import run\nclass A:\n    f = None\n    def i(s):\n        s.f = run\n    def g(s):\n        use(s.f)",
            {"fa.run"},
        ),
        ("class A:\n    def g(s):\n        use(s.f)", {"Unknown"}),
    ],
)
def test_follows_attributes_of_self(text: str, values: set[str]) -> None:
    found = _values({"use.py": text})
    assert {v.path if isinstance(v, External) else type(v).__name__ for v in found} == values


def test_follows_a_parameter_to_its_callers() -> None:
    files = {
        "low.py": "def split(x, fn, *, other=None):\n    use(fn)\n",
        "a.py": "from low import split\nfrom fa import run\nsplit(1, run)",
        "b.py": "import low\nfrom fb import run\nlow.split(1, fn=run)",
        "c.py": "def split(a, b): ...\nfrom fc import run\nsplit(1, run)",
    }
    assert set(_values(files, "low.py")) == {External("fa.run"), External("fb.run")}
    made = {
        "low.py": "class C:\n    def __init__(self, fn):\n        self.fn = fn\n    def go(self):\n        use(self.fn)\n",
        "a.py": "from low import C\nfrom fa import run\nC(run)",
    }
    assert _values(made, "low.py") == (External("fa.run"),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def f(fn):\n    use(fn)", "no caller"),
        ("use(nobody)", "nothing in the file binds"),
        ("use(make())", "nothing in the file binds|the result of"),
        ("for x in y:\n    use(x)", "not followed"),
        ("x = table['a']\nuse(x)", "subscript"),
        ("a = b\nb = a\nuse(b)", "leads back"),
        ("import m\nuse(getattr(m, name))", "not a plain string"),
        ("a, b = make()\nuse(a)", "unpacked"),
        ("(lambda fn: use(fn))", "lambda"),
    ],
)
def test_what_cannot_be_followed_says_why(text: str, reason: str) -> None:
    (value,) = _values({"use.py": text})
    assert isinstance(value, Unknown)
    assert any(part in value.reason for part in reason.split("|"))


def test_modules_that_import_each_other_end() -> None:
    files = {
        "a.py": "from b import x\n",
        "b.py": "from a import x\n",
        "use.py": "from a import x\nuse(x)",
    }
    (value,) = _values(files)
    assert isinstance(value, Unknown)


def test_a_partial_keeps_what_it_binds() -> None:
    text = "from functools import partial\nfrom fa import run\np = partial(run, 1, k=2)\nuse(p)"
    (value,) = _values({"use.py": text})
    assert isinstance(value, Partial)
    assert value.of == External("fa.run")
    assert [k.arg for k in value.call.keywords] == ["k"]


def test_a_script_may_import_what_lies_beside_it() -> None:
    beside = "def run(): ...\n"
    text = "from fa import run\nuse(run)"
    for name in ("hopper/test_fa.py", "hopper/bench.py"):
        script = text if "test_" in name else f"{text}\nif __name__ == '__main__':\n    pass"
        (value,) = _values({"hopper/fa.py": beside, name: script}, name)
        assert isinstance(value, Unknown)
        assert "beside" in value.reason
    assert _values({"plug/fa.py": beside, "plug/use.py": text}, "plug/use.py") == (
        External("fa.run"),
    )
