"""ATT210: the target's implementation used where the plugin has its own."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.guards import ancestors, is_typing_only
from attngate.validators.index import Ref
from attngate.validators.model import Severity
from attngate.validators.registry import rule
from attngate.validators.rules.class_path import path_strings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.index import Index
    from attngate.validators.names import FileNames


@rule("ATT210", "upstream-twin", Severity.WARNING)
def upstream_twin(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A function or backend is taken from the target although the plugin has its own version of it.

    Why:
        The target's wrapper asks for CUDA extensions or for another platform and answers "not
        supported", or takes another kernel. The plugin's version exists because of that; whoever
        imports the target's passes it by, and nothing fails.

    Instead:
        Import the plugin's own; where the target's is meant, say so in a comment that suppresses this.
    """
    index = context.index
    module = index.module_of(file.path)
    for node in file.source.names.imports:
        if (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and not is_typing_only(file.source.names, node)
        ):
            for alias in node.names:
                if _is_only_annotation(file.source.names, alias):
                    continue
                own = _own_version(index, module, node.module or "", alias.name)
                if own and not _is_wrapped(index, module, own, alias):
                    yield _hit(file, index, alias.lineno, f"{node.module}.{alias.name}", own)
    for constant in path_strings(file, index):
        path = str(constant.value).replace(":", ".")
        source, _, name = path.rpartition(".")
        own = _own_version(index, module, source, name)
        if own and not _is_override_key(file, constant):
            yield _hit(file, index, constant.lineno, path, own)


def _is_only_annotation(names: FileNames, alias: ast.alias) -> bool:
    """True where annotations are all that an imported name is for: nothing is called or derived then."""
    bound = alias.asname or alias.name
    uses = [n for n in names.loads if n.id == bound]
    return bool(uses) and all(_is_in_annotation(names, use) for use in uses)


def _is_in_annotation(names: FileNames, node: ast.AST) -> bool:
    for outer, child in ancestors(names, node):
        if isinstance(outer, ast.arg | ast.AnnAssign) and outer.annotation is child:
            return True
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) and outer.returns is child:
            return True
        if isinstance(outer, ast.stmt):
            return False
    return False


def _own_version(index: Index, user: str, source: str, name: str) -> str:
    """Dotted path of the plugin's version of a name of the target, "" where it has none."""
    if index.target is None or not index.target.owns(source):
        return ""
    for twin in index.twins_of(source):
        if twin == user or user.startswith(f"{twin}."):
            continue
        summary = index.summary(twin)
        if summary is None:
            continue
        for own in dict.fromkeys((name, f"{index.prefix}{name}")):
            if own == name and own in summary.functions and _is_copy(index, twin, source, name):
                continue
            if own in summary.functions:
                return f"{twin}.{own}"
            if own != name and own in summary.classes and _stands_alone(index, twin, own, source):
                return f"{twin}.{own}"
    return ""


def _stands_alone(index: Index, twin: str, own: str, source: str) -> bool:
    """True for a class that nobody registers in the place of the target's, nor derives from it."""
    ref = Ref("class", twin, own)
    known = index.class_of(ref)
    if known is None or any("register" in decorator for decorator in known.decorators):
        return False
    plain = own.removeprefix(index.prefix)
    if any(m == source and c.name == plain for m, c in index.lineage(ref).classes):
        return False
    return not any(re.match(rf"(\w+\.)*(\w*_)?{plain}\b", base) for base in known.bases)


def _is_copy(index: Index, twin: str, source: str, name: str) -> bool:
    """True where the plugin's function has the very text of the target's: then it makes no difference."""
    ours, theirs = index.summary(twin), index.summary(source)
    if ours is None or theirs is None or name not in theirs.functions:
        return False
    own, other = ours.functions[name][0], theirs.functions[name][0]
    texts = [
        index.source_lines(twin, own.line, own.end),
        index.source_lines(source, other.line, other.end),
    ]
    return "".join(texts[0].split()) == "".join(texts[1].split())


def _is_wrapped(index: Index, user: str, own: str, alias: ast.alias) -> bool:
    """True where the importer renames it, which says that it knows of both, or is part of the version."""
    twin = own.rpartition(".")[0]
    summary = index.summary(twin)
    names = summary.names if summary is not None else {}
    uses = any(b.kind == "from" and b.module == user for bounds in names.values() for b in bounds)
    return uses or (alias.asname is not None and alias.asname != alias.name)


def _is_override_key(file: SourceFile, node: ast.Constant) -> bool:
    """True for a string that says what is replaced: a key of a mapping, or the first of two paths."""
    parent = file.source.names.parents.get(node)
    if isinstance(parent, ast.Dict):
        return node in parent.keys
    if isinstance(parent, ast.Call):
        return parent.args[:1] == [node] and len(parent.args) > 1
    return isinstance(parent, ast.Compare)


def _hit(file: SourceFile, index: Index, line: int, path: str, own: str) -> Hit:
    module, _, name = own.rpartition(".")
    target = index.target
    assert target is not None
    return Hit(
        file.at(line),
        f"{path} is the target's; the plugin has its own version, {own}",
        advice=f"Use {own}.",
        expected=own,
        observed=path,
        origin=f"{index.path_of(module)} line {_line(index, module, name)}",
    )


def _line(index: Index, module: str, name: str) -> int:
    summary = index.summary(module)
    bounds = summary.names.get(name) if summary is not None else None
    return bounds[0].line if bounds else 1
