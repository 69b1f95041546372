"""ATT206: attributes that a module, a class or an object does not have."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.guards import is_tested, is_typing_only
from attngate.validators.index import Missing, Ref
from attngate.validators.infer import Instance, NoneValue, Super
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.index import Index
    from attngate.validators.infer import Value


@rule("ATT206", "unknown-attribute")
def unknown_attribute(file: SourceFile, context: Context) -> Iterator[Hit]:
    """An attribute is read that nothing defines: of a module, a class, or an object of a known class.

    Why:
        A method of a newer target, a metadata field that was removed, an enum member that was renamed:
        each is an AttributeError where the line runs, often only with one kind of model.

    Instead:
        Use the name that the target or the plugin has now. Where several targets are meant, ask with
        `hasattr` or `getattr` with a default.
    """
    names = file.source.names
    for node in names.attributes:
        if not isinstance(node.ctx, ast.Load) or node.attr.startswith("__"):
            continue
        owners = context.inference.values(file, node.value)
        owners = tuple(o for o in owners if not isinstance(o, NoneValue))
        if not owners or not all(_lacks(context, o, node.attr) for o in owners):
            continue
        if is_tested(names, node) or is_typing_only(names, node):
            continue
        if any(_may_answer(context.index, o, node, names.parents.get(node)) for o in owners):
            continue
        if not context.index.counterpart_says(file.path, ast.unparse(node)):
            yield _hit(file, context.index, node, owners[0])


def _lacks(context: Context, owner: Value, name: str) -> bool:
    """True where it is certain that the owner has no such attribute."""
    index = context.index
    if not isinstance(owner, Ref | Instance | Super):
        return False
    if isinstance(owner, Ref) and owner.kind not in ("class", "module"):
        return False
    found = tuple(context.inference.member(owner, name))
    if not found or not all(isinstance(f, Missing) for f in found):
        return False
    if isinstance(owner, Ref) and owner.kind == "module":
        return all(isinstance(f, Missing) and f.module == owner.module for f in found) and (
            not _is_imported_elsewhere(index, owner.module, name)
        )
    of = owner if isinstance(owner, Ref) else owner.of
    return isinstance(of, Ref) and not _may_have(index, of, name)


def _is_imported_elsewhere(index: Index, module: str, name: str) -> bool:
    return index.has_module(f"{module}.{name}")


def _may_answer(index: Index, owner: Value, node: ast.Attribute, parent: ast.AST | None) -> bool:
    """True for an object with a `__getattr__` that may know the name.

    Where the class has a family of questions of its own (`is_...`, `supports_...`), one more of them
    that is called is meant to be one of these.
    """
    if isinstance(owner, Ref) and owner.kind == "module":
        return False
    of = _class_behind(owner)
    if not index.is_dynamic(of):
        return False
    family = node.attr.partition("_")[0] + "_"
    methods = [n for _, known in index.lineage(of).classes for n in known.methods]
    is_called = isinstance(parent, ast.Call) and parent.func is node
    return not (is_called and sum(n.startswith(family) for n in methods) >= _FAMILY)


_FAMILY = 5


def _may_have(index: Index, ref: Ref, name: str) -> bool:
    """True where a base registers the name, somebody sets it from outside, or a subclass has it."""
    if name in index.patched or ref.name in index.borrowed:
        return True
    if any(path.endswith(".Protocol") for path in index.lineage(ref).foreign):
        return True
    for module, _ in index.lineage(ref).classes:
        summary = index.summary(module)
        if summary is not None and name in summary.strings:
            return True
    known = index.lineage(ref)
    for path in known.foreign:
        if name in (index.foreign_members(path) or ()):
            return True
    if index.subclass_has(ref, name):
        return True
    return index.target is not None and index.target.assigns(name)


def _hit(file: SourceFile, index: Index, node: ast.Attribute, owner: Value) -> Hit:
    if isinstance(owner, Ref) and owner.kind == "module":
        what, origin = f"the module {owner.module}", index.place(owner.module, 1)
    else:
        of = _class_behind(owner)
        known = index.class_of(of)
        what = (
            f"the class {of.name}" if not isinstance(owner, Super) else f"every base of {of.name}"
        )
        origin = index.place(of.module, known.line if known is not None else 1)
    near = _near(index, owner, node.attr)
    verb = "has no" if not isinstance(owner, Super) else "is without"
    return Hit(
        file.at(node.end_lineno or node.lineno, node.col_offset + 1),
        f"{what} {verb} attribute `{node.attr}`",
        advice=f"Meant is perhaps `{near}`." if near else "Use what is defined there.",
        observed=ast.unparse(node)[:120],
        origin=origin,
    )


def _class_behind(owner: Value) -> Ref:
    of = owner if isinstance(owner, Ref) else owner.of  # type: ignore[union-attr]
    assert isinstance(of, Ref)
    return of


def _near(index: Index, owner: Value, name: str) -> str:
    from difflib import get_close_matches

    if isinstance(owner, Ref) and owner.kind == "module":
        summary = index.summary(owner.module)
        names = list(summary.names) if summary is not None else []
    else:
        of = _class_behind(owner)
        skipped = 1 if isinstance(owner, Super) else 0
        classes = [c for _, c in index.lineage(of).classes[skipped:]]
        names = [n for c in classes for n in (*c.methods, *c.attributes)]
    found = get_close_matches(name, names, 1, 0.75)
    return found[0] if found else ""
