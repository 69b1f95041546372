"""What a change can affect is read from the tree, as Python would import it."""

from __future__ import annotations

from attngate.hooks.affected import import_closure

PLUGIN = {
    "pkg/__init__.py": "from . import registry\n",
    "pkg/registry.py": "import importlib\nops = importlib.import_module('pkg.ops')\n",
    "pkg/ops/__init__.py": "",
    "pkg/ops/merge.py": (
        "from typing import TYPE_CHECKING\n"
        "from ..util import scale as s\n"
        "from . import helpers\n"
        "if TYPE_CHECKING:\n    from pkg.types_only import T\n"
        "else:\n    import pkg.at_run_time\n"
        "def f():\n    from pkg.lazy import g\n"
    ),
    "pkg/ops/helpers.py": "import torch\nimport pkg.missing\n",
    "pkg/util.py": "",
    "pkg/lazy.py": "",
    "pkg/types_only.py": "",
    "pkg/at_run_time.py": "",
    "pkg/other.py": "",
}


def paths(closure):
    return {p.decode() for p in closure.paths}


def test_closure_follows_parents_relative_lazy_and_literal_imports(tree):
    closure = import_closure(tree(PLUGIN), "pkg.ops.merge", ["pkg"])
    assert paths(closure) == {
        f"pkg/{p}.py"
        for p in (
            "__init__",
            "registry",
            "ops/__init__",
            "ops/merge",
            "ops/helpers",
            "util",
            "lazy",
            "at_run_time",
        )
    }


def test_a_name_that_no_file_answers_to_is_told_and_attributes_are_not(tree):
    closure = import_closure(tree(PLUGIN), "pkg.ops.merge", ["pkg"])
    assert "pkg.util.scale" not in closure.unresolved
    closure = import_closure(
        tree({**PLUGIN, "pkg/other.py": "from pkg.gone.sub import x\n"}), "pkg.other", ["pkg"]
    )
    assert "pkg.gone.sub" in closure.unresolved


def test_source_roots_are_searched(tree):
    files = {f"src/{path}": text for path, text in PLUGIN.items()}
    closure = import_closure(tree(files), "pkg.util", ["pkg"], ["src"])
    assert "src/pkg/util.py" in paths(closure)


def test_a_change_outside_the_closure_does_not_touch_it(tree):
    closure = import_closure(tree(PLUGIN), "pkg.ops.merge", ["pkg"])
    assert closure.touches(frozenset({b"pkg/util.py"}))
    assert not closure.touches(frozenset({b"pkg/other.py"}))
    assert closure.touches(None)


def test_digest_changes_with_any_file_of_the_closure_and_with_no_other(tree):
    def digest(files):
        snapshot = tree(files)
        return import_closure(snapshot, "pkg.ops.merge", ["pkg"]).digest(snapshot)

    before = digest(PLUGIN)
    assert digest({**PLUGIN, "pkg/other.py": "x = 1\n"}) == before
    assert digest({**PLUGIN, "pkg/util.py": "x = 1\n"}) != before


def test_a_module_that_is_not_there_has_an_empty_closure(tree):
    closure = import_closure(tree({}), "pkg.nothing", ["pkg"])
    assert closure.paths == ()


def test_a_relative_import_that_climbs_out_is_ignored(tree):
    closure = import_closure(tree({"pkg/__init__.py": "from ... import x\n"}), "pkg", ["pkg"])
    assert paths(closure) == {"pkg/__init__.py"}
