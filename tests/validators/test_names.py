from __future__ import annotations

import ast

import pytest

from attngate.validators.names import FileNames


def _reaching(text: str, name: str = "x") -> list[int]:
    """Lines of the bindings of `name` that reach the call `use(...)` in the text."""
    names = FileNames(ast.parse(text))
    (use,) = (c for c in names.calls if isinstance(c.func, ast.Name) and c.func.id == "use")
    scope = names.scope_of(use)
    found = names.reaching(name, scope, names.statement_of(use))
    return [getattr(b.statement, "lineno", 0) for b in found]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x = 1\nx = 2\nuse(x)\nx = 3", [2]),
        ("x = 1\nif a:\n    x = 2\nuse(x)", [1, 3]),
        ("x = 1\nif a:\n    x = 2\nelse:\n    x = 3\nuse(x)", [3, 5]),
        ("x = 1\nif a:\n    x = 2\n    use(x)\nelse:\n    x = 3", [3]),
        ("x = 1\nif a:\n    raise E\nelse:\n    x = 3\nuse(x)", [5]),
        ("try:\n    import x\nexcept E:\n    x = None\nuse(x)", [2, 4]),
        ("x = 1\ntry:\n    x = 2\nexcept E:\n    use(x)", [1, 3]),
        ("x = 1\ntry:\n    x = 2\nexcept E:\n    raise\nelse:\n    use(x)", [3]),
        ("x = 1\nfor a in b:\n    use(x)\n    x = 2", [1, 4]),
        ("x = 1\nwith a:\n    x = 2\nuse(x)", [3]),
        ("x = 1\nx, y = 2, 3\nuse(x)", [2]),
        ("x = 1\nfor x in y:\n    pass\nuse(x)", [1, 2]),
        ("x = 1\nif (x := f()):\n    use(x)", [1, 2]),
        ("x = 1\nwith a as x:\n    use(x)", [2]),
        ("x = 1\nwhile b:\n    for x in y:\n        use(x)\n    x = 2", [1, 3, 5]),
        ("x = 1\nmatch a:\n    case [x]:\n        use(x)", [1, 2]),
        ("for a in b:\n    x = 1\n    use(x)\n    x = 2", [2]),
        ("import x.y\nuse(x)", [1]),
        ("from m import y as x\nuse(x)", [1]),
    ],
)
def test_the_last_binding_on_each_way_reaches(text: str, lines: list[int]) -> None:
    assert _reaching(text) == lines
    indented = "def f():\n" + "\n".join(f"    {line}" for line in text.split("\n"))
    assert _reaching(indented) == [line + 1 for line in lines]


def test_a_parameter_reaches_where_nothing_surely_replaces_it() -> None:
    assert _reaching("def f(x):\n    if a:\n        x = 2\n    use(x)") == [1, 3]
    assert _reaching("def f(x):\n    x = 2\n    use(x)") == [2]


def test_defaults_and_decorators_belong_to_the_scope_around() -> None:
    names = FileNames(
        ast.parse("def f(a=use(1)):\n    pass\n\n@use(2)\nclass C(use(3)):\n    b = use(4)")
    )
    scopes = [type(names.scope_of(call).node).__name__ for call in names.calls]
    assert sorted(scopes) == ["ClassDef", "Module", "Module", "Module"]


def test_global_names_are_bound_in_the_module() -> None:
    names = FileNames(ast.parse("def f():\n    global x\n    x = 1\n"))
    assert [b.name for b in names.module.bindings["x"]] == ["x"]
