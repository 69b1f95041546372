"""The way from a backend's registration to the kernels it ends in, hop by hop.

Everything is read from the source: decorators and path strings that register a class, the classes that
its methods return, and the calls of their methods, through wrappers of the plugin to a component's entry
point, a Triton kernel, a torch operator or a function of the target. What cannot be followed ends in a
hop that says why; a call that leads to none of these is left out.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from attngate.validators.index import Foreign, Missing, Open, Ref
from attngate.validators.infer import Method, NoneValue
from attngate.validators.model import Level
from attngate.validators.rules.class_path import path_of, path_strings
from attngate.validators.symbols import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.infer import Value
    from attngate.validators.model import ContractCall
    from attngate.validators.symbols import Class

_DEEPEST = 9
_MOST = 8
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_COMPONENTS = ("flash_attn", "flash_mla", "deep_gemm", "flashinfer", "vllm_flash_attn", "mcoplib")
_TARGET_KERNELS = re.compile(r"\.(ops|_custom_ops|kernels|sparse_attn_indexer|sparse_utils)\.")
_KERNEL_LIKE = re.compile(r"flash|attn|attention|mla|logits|kv_cache|topk|merge_|gemm|indexer")
# Words in conditions and names to what a path through them is for.
_TAGS = {
    "prefill": "prefill", "decode": "decode", "dcp": "DCP", "cascade": "cascade", "sink": "sinks",
    "fp8": "fp8", "quant": "quantised", "capture": "capture", "cudagraph": "capture",
    "graph": "capture", "encoder": "encoder", "mtp": "MTP", "spec": "MTP", "flatten": "flattened",
    "native": "native", "fallback": "fallback", "sparse": "sparse", "window": "window",
    "context": "context", "batch_invariant": "batch-invariant",
}  # fmt: skip
_ENTRY_METHODS = (
    "__init__", "build", "build_for_cudagraph_capture", "update_block_table", "forward",
    "forward_mha", "forward_mqa", "do_kv_cache_update", "process_weights_after_loading",
)  # fmt: skip
_GIVES_CLASS = {"get_builder_cls": "builder", "get_impl_cls": "implementation"}


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a way.

    Attributes:
        kind: "registration", "backend", "builder", "implementation", "method", "function", "target",
            "component", "triton kernel", "torch operator", "refused" or "unknown".
        name: What is reached.
        place: Where the step is taken: file and line, with the target's name for its files.
        conditions: Tests that have to hold, the outermost first.
        tags: What the way is for, by the words in its conditions and names.
        origin: What decides: the plugin's tree, the target, a contract's build.
        level: How strongly it is established.
        note: Why it cannot be followed, what the contract says, or that the rest stands above.
        steps: Where it goes on.
    """

    kind: str
    name: str
    place: str
    conditions: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    origin: str = "plugin tree"
    level: Level = Level.SOURCE_INSPECTED
    note: str = ""
    steps: tuple[Hop, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a name stands for: classes and functions of the plugin, or names that are close to it."""

    found: tuple[Ref, ...]
    close: tuple[str, ...] = ()


def find(context: Context, name: str) -> Asked:
    """The plugin's classes and functions that a user can mean.

    Args:
        context: The tree.
        name: A class, with or without the plugin's prefix, the name of a backend in its registration
            ("FLASH_ATTN"), a module, or a dotted path.
    """
    index = context.index
    by_name: dict[str, list[Ref]] = {}
    for path in sorted(context.in_scope):
        module = index.module_of(path)
        summary = index.summary(module)
        if summary is None:
            continue
        backends = [c for c in summary.classes.values() if _GIVES_CLASS.keys() & c.methods.keys()]
        for known in summary.classes.values():
            for word in _names_of(context, module, known):
                by_name.setdefault(word, []).append(Ref("class", module, known.name))
        for function in summary.functions:
            for word in (function, f"{module}.{function}"):
                by_name.setdefault(word.lower(), []).append(Ref("function", module, function))
        parts = [Ref("class", module, known.name) for known in backends]
        parts = parts or [Ref("function", module, name) for name in summary.functions]
        for word in (module, module.rpartition(".")[2]) if parts else ():
            by_name.setdefault(word.lower(), []).extend(parts)
    found = by_name.get(name.lower(), [])
    if found:
        return Asked(tuple(dict.fromkeys(found)))
    return Asked((), tuple(get_close_matches(name.lower(), list(by_name), 5, 0.6)))


def _names_of(context: Context, module: str, known: Class) -> Iterator[str]:
    plain = context.index.target_name(known.name)
    for word in (known.name, plain, f"{module}.{known.name}"):
        yield word.lower()
    for decorator in known.decorators:
        match = re.search(r"register\w*\(\s*(?:\w+\.)*(\w+)", decorator)
        if match:
            yield match[1].lower()


def trace(context: Context, ref: Ref) -> Hop:
    """The way from where a class or function is registered to the kernels behind it."""
    return _Tracer(context).of(ref)


@dataclass(eq=False)
class _Tracer:
    context: Context
    _self: Ref | None = None
    _done: set[tuple[str, int]] = field(default_factory=set)
    _shown: set[tuple[str, int]] = field(default_factory=set)
    _calls: dict[tuple[str, int], ContractCall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for judgement in self.context.judge.judgements:
            call = judgement.call
            self._calls[call.location.path, call.location.line] = call

    def of(self, ref: Ref) -> Hop:
        index = self.context.index
        if ref.kind == "function":
            file = self.context.files[index.path_of(ref.module)]
            node = _function_at(file, index.functions_of(ref)[-1].line)
            steps = tuple(self._body(file, node, 0)) if node is not None else ()
            line = index.functions_of(ref)[-1].line
            return Hop("function", ref.name, index.place(ref.module, line), steps=steps)
        known = index.class_of(ref)
        assert known is not None
        registered = tuple(self._registrations(ref, known))
        parts = tuple(self._parts(ref)) or tuple(self._methods(ref))
        place = index.place(ref.module, known.line)
        return Hop("backend", ref.name, place, steps=(*registered, *parts))

    # Registration

    def _registrations(self, ref: Ref, known: Class) -> Iterator[Hop]:
        index = self.context.index
        for decorator in known.decorators:
            if "register" in decorator:
                place = index.place(ref.module, known.line)
                yield Hop("registration", f"@{decorator}", place, tags=("decorator",))
        path = f"{ref.module}.{ref.name}"
        for where in sorted(self.context.in_scope):
            file = self.context.files[where]
            if ref.name not in file.source.text:
                continue
            for constant in path_strings(file, index):
                if path_of(constant) == path:
                    yield Hop(
                        "registration",
                        f'"{path}"',
                        f"{where} line {constant.lineno}",
                        conditions=_conditions(file, constant),
                        tags=_tags(_conditions(file, constant)),
                        note=f"in {file.symbol_at(constant.lineno) or 'the module'}",
                    )

    # Parts of a backend

    def _parts(self, ref: Ref) -> Iterator[Hop]:
        index = self.context.index
        for method, kind in _GIVES_CLASS.items():
            owner = self._holder(ref, method)
            if owner is None:
                continue
            module, function = owner
            place = index.place(module, function)
            returned = self._returned_class(module, function)
            if returned is None:
                note = f"what {method} returns cannot be followed"
                yield Hop("unknown", method, place, level=Level.UNTESTED, note=note)
                continue
            line = getattr(index.class_of(returned), "line", 1)
            where = index.place(returned.module, line)
            steps = tuple(self._methods(returned))
            origin = self._origin(returned.module)
            yield Hop(
                kind, returned.name, where, origin=origin, note=f"by {method}, {place}", steps=steps
            )

    def _holder(self, ref: Ref, method: str) -> tuple[str, int] | None:
        for module, known in self.context.index.lineage(ref).classes:
            functions = known.methods.get(method)
            if functions and not functions[-1].is_abstract:
                return module, functions[-1].line
        return None

    def _returned_class(self, module: str, line: int) -> Ref | None:
        index = self.context.index
        file = self.context.files.get(index.path_of(module)) if index.is_tree(module) else None
        node = _function_at(file, line) if file is not None else None
        for part in ast.walk(node) if node is not None else ():
            if isinstance(part, ast.Return) and isinstance(part.value, ast.Name | ast.Attribute):
                assert file is not None
                for value in self.context.inference.values(file, part.value):
                    if isinstance(value, Ref) and value.kind == "class":
                        return value
        return None

    def _methods(self, ref: Ref) -> Iterator[Hop]:
        """The methods that the target calls, own ones and those inherited from the plugin."""
        self._self = ref
        index = self.context.index
        names = dict.fromkeys([*_ENTRY_METHODS, *(getattr(index.class_of(ref), "methods", {}))])
        for name in names:
            if name not in _ENTRY_METHODS and not name.startswith("forward"):
                continue
            for module, known in index.lineage(ref).classes:
                functions = known.methods.get(name)
                if functions:
                    yield from self._method(module, known, name, functions[-1].line)
                    break

    def _method(self, module: str, known: Class, name: str, line: int) -> Iterator[Hop]:
        index = self.context.index
        place = index.place(module, line)
        if not index.is_tree(module):
            if not name.startswith("__"):
                origin = self._origin(module)
                yield Hop("target", f"{known.name}.{name}", place, origin=origin, note="inherited")
            return
        file = self.context.files[index.path_of(module)]
        node = _function_at(file, line)
        steps = tuple(self._body(file, node, 0)) if node is not None else ()
        if steps or not name.startswith("__"):
            yield Hop("method", f"{known.name}.{name}", place, tags=_tags([name]), steps=steps)

    # Calls

    def _body(self, file: SourceFile, node: _FunctionNode, depth: int) -> Iterator[Hop]:
        """Hops for the calls of a function that lead to a kernel, in order of the text."""
        calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        for call in sorted(calls, key=lambda c: (c.lineno, c.col_offset)):
            hop = self._call(file, call, depth)
            if hop is not None:
                conditions = _conditions(file, call, node)
                tags = _tags([*conditions, hop.name])
                yield replace(hop, conditions=conditions, tags=tags)

    def _call(self, file: SourceFile, call: ast.Call, depth: int) -> Hop | None:
        place = f"{file.path} line {call.lineno}"
        if isinstance(call.func, ast.Subscript):
            return self._launch(file, call.func, place)
        path = dotted(call.func)
        if path.startswith("torch.ops."):
            return Hop(
                "torch operator",
                path.removeprefix("torch.ops."),
                place,
                origin="torch.ops",
                note=_OPERATOR,
            )
        judged = self._calls.get((file.path, call.lineno))
        if judged is not None and path.rpartition(".")[2] == judged.callee.rpartition(".")[2]:
            note = f"{judged.verdict.value}: {judged.reason}"
            origin = judged.origin or "no contract"
            return Hop(
                "component", judged.entry, place, origin=origin, level=judged.level, note=note
            )
        values = [v for v in self._callees(file, call.func) if not isinstance(v, NoneValue)]
        hops = [h for v in values if (h := self._value(v, place, path, depth)) is not None]
        if len(hops) > 1:
            return Hop(
                "function", path, place, note="one of these, by condition", steps=tuple(hops)
            )
        return hops[0] if hops else None

    def _callees(self, file: SourceFile, func: ast.expr) -> tuple[Value, ...]:
        """What is called; a method of `self` is looked up from the class that is traced."""
        inference = self.context.inference
        is_own = isinstance(func, ast.Attribute) and dotted(func.value) == "self"
        if is_own and self._self is not None and isinstance(func, ast.Attribute):
            around = inference.class_around(file, func)
            lineage = self.context.index.lineage(self._self)
            if around is not None and any(
                m == around.module and c.name == around.name for m, c in lineage.classes
            ):
                return tuple(
                    inference.class_member(self._self, func.attr, instance=True, exact=True)
                )
        return inference.values(file, func)

    def _launch(self, file: SourceFile, func: ast.Subscript, place: str) -> Hop | None:
        """`kernel[grid](...)`: a Triton kernel, where it is a name of a function."""
        for value in self.context.inference.values(file, func.value):
            if isinstance(value, Ref) and value.kind == "function":
                functions = self.context.index.functions_of(value)
                if any("jit" in d or "autotune" in d for f in functions for d in f.decorators):
                    origin = self._origin(value.module)
                    note = (
                        f"defined at {self.context.index.place(value.module, functions[-1].line)}"
                    )
                    return Hop("triton kernel", str(value), place, origin=origin, note=note)
        return None

    def _value(self, value: Value, place: str, path: str, depth: int) -> Hop | None:
        index = self.context.index
        if isinstance(value, Method):
            return self._dispatch(value, place, path, depth)
        if isinstance(value, Ref) and value.kind == "function":
            functions = index.functions_of(value)
            return (
                self._into(value.module, functions[-1].line, value.name, place, depth)
                if functions
                else None
            )
        if isinstance(value, Foreign) and value.path.partition(".")[0] in _COMPONENTS:
            note = "no contract is recorded for it"
            return Hop(
                "component", value.path, place, origin="imported", level=Level.UNTESTED, note=note
            )
        if isinstance(value, Open | Missing) and _KERNEL_LIKE.search(path.rpartition(".")[2]):
            if isinstance(value, Missing):
                reason = f"{value.module} does not define it"
            else:
                reason = value.reason
            return Hop("unknown", path, place, origin="", level=Level.UNTESTED, note=reason)
        return None

    def _dispatch(self, method: Method, place: str, path: str, depth: int) -> Hop | None:
        """A method, or those of the plugin's subclasses where the object can be one of them."""
        index = self.context.index
        name = method.function.name
        found = [(method.owner, method.function)]
        for ref in index.derived_from(method.owner.module, method.owner.name):
            functions = getattr(index.class_of(ref), "methods", {}).get(name)
            if functions and not method.exact:
                found.append((ref, functions[-1]))
        hops = [
            hop
            for owner, function in found[:_MOST]
            if (
                hop := self._into(owner.module, function.line, f"{owner.name}.{name}", place, depth)
            )
        ]
        if len(hops) < 2:
            return hops[0] if hops else None
        return Hop("function", path, place, note="one of these, by class", steps=tuple(hops))

    def _into(self, module: str, line: int, name: str, place: str, depth: int) -> Hop | None:
        index = self.context.index
        if not index.is_tree(module):
            return self._of_target(module, line, name, place)
        key = (index.path_of(module), line)
        if self._only_raises(module, name, line):
            note = f"defined at {key[0]} line {line}; raises NotImplementedError"
            return Hop("refused", name, place, note=note)
        note = f"defined at {key[0]} line {line}"
        if depth >= _DEEPEST:
            return Hop(
                "unknown", name, place, level=Level.UNTESTED, note=f"{note}; not followed deeper"
            )
        if key in self._done:
            return (
                Hop("function", name, place, note=f"{note}; shown above")
                if key in self._shown
                else None
            )
        self._done.add(key)
        file = self.context.files[key[0]]
        node = _function_at(file, line)
        steps = tuple(self._body(file, node, depth + 1)) if node is not None else ()
        if not steps:
            return None
        self._shown.add(key)
        return Hop("function", name, place, note=note, steps=steps)

    def _of_target(self, module: str, line: int, name: str, place: str) -> Hop | None:
        """A function of the target, where its module holds kernels or their wrappers."""
        if not _TARGET_KERNELS.search(f"{module}."):
            return None
        note = f"defined at {self.context.index.place(module, line)}"
        return Hop("target", f"{module}.{name}", place, origin=self._origin(module), note=note)

    def _only_raises(self, module: str, name: str, line: int) -> bool:
        """True for a stand-in with a kernel's name that refuses every call."""
        summary = self.context.index.summary(module)
        known = summary.functions.get(name, []) if summary is not None else []
        refuses = any(f.only_raises and f.line == line for f in known)
        return refuses and _KERNEL_LIKE.search(name) is not None

    def _origin(self, module: str) -> str:
        target = self.context.index.target
        if self.context.index.is_tree(module) or target is None:
            return "plugin tree"
        return target.label


_OPERATOR = "which library registers it is not visible in Python"


def _function_at(file: SourceFile, line: int) -> _FunctionNode | None:
    for node in file.source.names.scopes:
        if isinstance(node, _FunctionNode) and node.lineno == line:
            return node
    return None


def _conditions(file: SourceFile, node: ast.AST, within: ast.AST | None = None) -> tuple[str, ...]:
    """Tests under which a node runs, from the function (or the file) inwards."""
    parents = file.source.names.parents
    found: list[str] = []
    child, parent = node, parents.get(node)
    while parent is not None and child is not within:
        found += reversed(_passed_by(parent, child))
        if isinstance(parent, ast.If):
            if child in parent.body:
                found.append(_short(parent.test))
            elif child in parent.orelse:
                found.append(f"not ({_short(parent.test)})")
        elif isinstance(parent, ast.IfExp) and child is not parent.test:
            test = _short(parent.test)
            found.append(test if child is parent.body else f"not ({test})")
        elif isinstance(parent, ast.ExceptHandler):
            found.append(f"after {_short(parent.type) if parent.type else 'any error'}")
        elif isinstance(parent, _FunctionNode) and within is None:
            break
        child, parent = parent, parents.get(parent)
    return tuple(reversed(found))


def _passed_by(parent: ast.AST, child: ast.AST) -> list[str]:
    """Tests before a statement of a block that would have left the block."""
    found: list[str] = []
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if not isinstance(block, list) or child not in block:
            continue
        for before in block[: block.index(child)]:
            leaves = isinstance(before, ast.If) and isinstance(before.body[-1], _LEAVES)
            if leaves and isinstance(before, ast.If) and not before.orelse:
                found.append(f"not ({_short(before.test)})")
    return found


_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def _short(node: ast.expr) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:67]}..."


def _tags(texts: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    found = dict.fromkeys(
        tag for text in texts for word, tag in _TAGS.items() if word in text.lower()
    )
    return tuple(found)
