"""Follows the calls of a function to the kernels that they end in.

Functions of the plugin are followed without a limit but depth, functions of the target a few calls
deep. A call that leads to no kernel is left out; one that looks like a kernel and cannot be followed
stays as a hop that says why.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from attngate.validators.conditions import FunctionNode, conditions_of, tags_of, texts_of
from attngate.validators.context import SourceFile
from attngate.validators.contracts.load import families
from attngate.validators.hops import Hop
from attngate.validators.index import Foreign, Missing, Open, Ref
from attngate.validators.infer import Instance, Method
from attngate.validators.model import Level
from attngate.validators.operators import Operators
from attngate.validators.provenance import Provenance
from attngate.validators.source import Source
from attngate.validators.symbols import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.conditions import Test
    from attngate.validators.context import Context
    from attngate.validators.infer import Value
    from attngate.validators.model import ContractCall
    from attngate.validators.symbols import Class, Function

_DEEPEST = 12
_DEEPEST_IN_TARGET = 4
_MOST = 8
_COMPONENTS = (
    "flash_attn", "flash_mla", "deep_gemm", "flashinfer", "vllm_flash_attn", "mcoplib", "aiter",
    "tilelang",
)  # fmt: skip
# Modules of the target whose functions are kernels or stand right before one.
_KERNELS = re.compile(r"\.(ops|_custom_ops|kernels|sparse_attn_indexer|sparse_utils)\.")
# Modules of the target in which no way to an attention kernel goes on.
_ASIDE = re.compile(
    r"^\w+\.(logger|envs|config|tracing|transformers_utils|compilation|platforms|entrypoints|utils"
    r"|forward_context|multimodal|profiler|sampling_params|v1\.worker\.workspace)\b"
)
_BETWEEN_RANKS = re.compile(r"^\w+\.distributed\b")
_KERNEL_LIKE = re.compile(
    r"^(?!_?(is|has|get_num|supports?|should|use|num|max|min|validate|check|can|determine|register"
    r"|split|infer)_)"
    r".*(flash|attn|attention|mla|logits|kv_cache|topk|merge_|gemm|indexer)"
)
_ABOUT_ATTENTION = re.compile(r"flash|attn|attention|mla|logits|kv_cache|topk|merge_|indexer")
_SCHEDULES = re.compile(r"scheduler_metadata|mla_metadata")
# The target's class of operators that have a method a platform, and when which one runs.
_DISPATCHED = "CustomOp"
_WHEN_DISPATCHED = {
    "forward_oot": "on a platform from outside the target",
    "forward_native": "where the operator is switched off, or has none of its own for the platform",
}
_DECIDED_LATER = "which library registers it is not visible in Python or in the tree's C++ sources"


@dataclass(eq=False)
class Follower:
    """Ways from functions to kernels; what one way has shown, the next refers to.

    Attributes:
        context: The tree.
        receiver: The class whose methods are followed: what `self` is in methods that it inherits.
        bound: Name of the attribute that holds the implementation, where a layer is followed.
        methods: Methods of that implementation.
        cut: Functions that were not entered because the way to them was too long.
    """

    context: Context
    receiver: Ref | None = None
    bound: str = ""
    methods: frozenset[str] = frozenset()
    cut: list[str] = field(default_factory=list)
    _active: set[tuple[str, int]] = field(default_factory=set)
    _done: set[tuple[str, int]] = field(default_factory=set)
    _shown: set[tuple[str, int]] = field(default_factory=set)
    _made: dict[tuple[str, int], SourceFile] = field(default_factory=dict)

    @cached_property
    def operators(self) -> Operators:
        """Who registers operators."""
        return Operators(self.context)

    @cached_property
    def _provenance(self) -> Provenance:
        return Provenance(self.context)

    @cached_property
    def _entry_names(self) -> frozenset[str]:
        """Names of the components' entry points: a function that is called so means to be one."""
        return frozenset(
            entry.name
            for family in families().values()
            for build in family.builds
            for entry in build.entries
            if not entry.owner
        )

    @cached_property
    def _calls(self) -> dict[tuple[str, int, int], ContractCall]:
        found = [judgement.call for judgement in self.context.judge.judgements]
        return {(c.location.path, c.location.line, c.location.column): c for c in found}

    # Sources

    def file_of(self, module: str, function: Function, owner: Class | None) -> SourceFile | None:
        """The file of a function; of the target's, only the function and the head of its class.

        The target's files are long, and one function of them is asked for. A file stands under its
        module's name then, which `Index.module_of` gives back as it is.
        """
        index = self.context.index
        if index.is_tree(module):
            return self.context.files.get(index.path_of(module))
        key = (module, function.line)
        if key not in self._made:
            raw = index.source_lines(module, 1, function.end)
            lines = raw.split("\n")
            kept = [""] * len(lines)
            kept[function.line - 1 :] = lines[function.line - 1 :]
            if owner is not None:
                kept[owner.line - 1] = f"class {owner.name.rpartition('.')[2]}:"
            elif kept[function.line - 1][:1].isspace() and function.line > 1:
                # It stands below a condition of its module.
                kept[function.line - 2] = "if True:"
            text = "\n".join(kept)
            self._made[key] = SourceFile.of(module, module.encode(), Source(text.encode(), text))
        return self._made[key]

    def place(self, file: SourceFile, line: int) -> str:
        """A line of a file in a user's words."""
        return self.context.index.place(self.context.index.module_of(file.path), line)

    def origin(self, module: str) -> str:
        """Whose a module is."""
        index = self.context.index
        if index.is_tree(module) or index.target is None:
            return "plugin tree"
        return index.target.label

    # Bodies

    def body(
        self, module: str, function: Function, owner: Class | None, depth: int = 0
    ) -> tuple[Hop, ...]:
        """Hops for the calls of a function that lead to a kernel, in order of the text."""
        file = self.file_of(module, function, owner)
        node = function_at(file, function.line) if file is not None else None
        if file is None or node is None:
            return ()
        return tuple(self._body(file, node, depth))

    def _body(self, file: SourceFile, node: FunctionNode, depth: int) -> Iterator[Hop]:
        local = {n.name: n for n in _inside(node) if isinstance(n, FunctionNode)}
        used: set[str] = set()
        parts = [n for n in _inside(node) if isinstance(n, ast.Call)]
        for call in sorted(parts, key=lambda c: (c.lineno, c.col_offset)):
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            if name in local:
                hop = self._local(file, local[name], call, depth, shown=name in used)
                used.add(name)
            else:
                hop = self._call(file, call, depth)
            if hop is not None:
                tests = conditions_of(file.source.names, call, node)
                yield _with_tests(hop, tests)
        for name in local.keys() - used:
            hop = self._local(file, local[name], local[name], depth, shown=False)
            if hop is not None:
                yield replace(hop, note="defined here and handed on; who calls it is not followed")

    def _local(
        self,
        file: SourceFile,
        node: FunctionNode,
        at: ast.stmt | ast.expr,
        depth: int,
        *,
        shown: bool,
    ) -> Hop | None:
        """A function that is defined inside the one that is followed."""
        key = (file.path, node.lineno)
        if depth > _DEEPEST or key in self._active:
            return None
        self._active.add(key)
        steps = () if shown else tuple(self._body(file, node, depth + 1))
        self._active.discard(key)
        if not steps and key not in self._shown:
            return None
        self._shown.add(key)
        note = f"defined at {self.place(file, node.lineno)}{'' if steps else '; shown above'}"
        origin = self.origin(self.context.index.module_of(file.path))
        return Hop("function", node.name, self.place(file, at.lineno), (), (), origin, note=note,
                   steps=steps)  # fmt: skip

    # Calls

    def _call(self, file: SourceFile, call: ast.Call, depth: int) -> Hop | None:
        place = self.place(file, call.lineno)
        if isinstance(call.func, ast.Subscript):
            return self._launch(file, call.func, place)
        path = dotted(call.func)
        if path.startswith("torch.ops."):
            return self._operator(path, place, depth)
        judged = self._calls.get((file.path, call.lineno, call.col_offset + 1))
        if judged is not None:
            return self._component(file, call, judged, place)
        if self._is_bound(call.func):
            method = path.rpartition(".")[2]
            note = "the implementation that the layer holds; stands above"
            if self.methods and method not in self.methods:
                note = "the traced implementation has no such method"
            return Hop("binding", f"{self.bound}.{method}", place, note=note,
                       origin=self.origin(self.context.index.module_of(file.path)))  # fmt: skip
        hops = self._outcomes(file, call.func, place, path, depth)
        hops = [replace(h, steps=(*h.steps, *self._handed(file, call))) for h in hops]
        if len(hops) > 1:
            note = "one of these, by condition"
            return Hop("function", path, place, origin="", note=note, steps=tuple(hops))
        return hops[0] if hops else None

    def _handed(self, file: SourceFile, call: ast.Call) -> Iterator[Hop]:
        """Triton kernels that are handed to a function, which is to launch them."""
        for argument in [*call.args, *(k.value for k in call.keywords)]:
            if isinstance(argument, ast.Name | ast.Attribute):
                for value in self.context.inference.values(file, argument):
                    hop = self._kernel(value, self.place(file, argument.lineno))
                    if hop is not None:
                        note = f"{hop.note}; handed over as an argument"
                        yield replace(hop, note=note, tags=tags_of([], [hop.name]))

    def _outcomes(
        self, file: SourceFile, func: ast.expr, place: str, path: str, depth: int
    ) -> list[Hop]:
        if isinstance(func, ast.Name):
            bound = self._by_binding(file, func, place, depth)
            if bound:
                return bound
        values = self._callees(file, func)
        if all(isinstance(v, Open) for v in values):
            found = self._by_other_means(file, func, place, depth)
            if found:
                return found
        hops = [h for v in values if (h := self._value(v, place, path, depth)) is not None]
        return _distinct(hops)

    def _by_binding(self, file: SourceFile, func: ast.Name, place: str, depth: int) -> list[Hop]:
        """A local name that was given one of several functions, each by its condition."""
        names = file.source.names
        scope = names.scope_of(func)
        if scope.outer is None or func.id not in scope.bindings:
            return []
        hops: list[Hop] = []
        for binding in names.reaching(func.id, scope, names.statement_of(func)):
            if not isinstance(binding.how, ast.expr) or binding.element is not None:
                continue
            for branch in _branches(binding.how):
                tests = conditions_of(names, branch)
                for value in self.context.inference.values(file, branch):
                    hop = self._value(value, place, dotted(branch) or func.id, depth)
                    hops += [_with_tests(hop, tests)] if hop is not None else []
        return _distinct(hops)

    def _by_other_means(
        self, file: SourceFile, func: ast.expr, place: str, depth: int
    ) -> list[Hop]:
        """What inference leaves open: attributes by what they are given, aliases, a layer by its name."""
        if isinstance(func, ast.Name):
            return self._aliased(file, func.id, place, depth)
        if not isinstance(func, ast.Attribute):
            return []
        if self.bound and func.attr.startswith("forward") and self.receiver is not None:
            note = "the layer is looked up by its name while it runs; taken to be this one"
            member = self.context.inference.class_member(self.receiver, func.attr, instance=True)
            hops = [
                self._value(v, place, func.attr, depth) for v in member if isinstance(v, Method)
            ]
            return [replace(h, note=f"{h.note}; {note}") for h in hops if h is not None]
        return self._assigned(file, func, place, depth)

    def _aliased(self, file: SourceFile, name: str, place: str, depth: int) -> list[Hop]:
        """A name that a module of the plugin gives to a member of a class: `name = Class.member`."""
        index = self.context.index
        module, seen = index.module_of(file.path), set[str]()
        while module not in seen and index.is_tree(module) and index.path_of(module):
            seen.add(module)
            where = self.context.files[index.path_of(module)]
            for binding in where.source.names.module.bindings.get(name, ())[-1:]:
                if isinstance(binding.how, ast.alias) and binding.of is not None:
                    written = "." * binding.of.level + (binding.of.module or "")
                    module, name = index.absolute(module, written), binding.how.name
                elif isinstance(binding.how, ast.Attribute):
                    values = self.context.inference.values(where, binding.how)
                    hops = [self._value(v, place, name, depth) for v in values]
                    set_at = f"set at {self.place(where, binding.how.lineno)}"
                    return [replace(h, note=f"{h.note}; {set_at}") for h in hops if h is not None]
        return []

    def _is_bound(self, func: ast.expr) -> bool:
        """True for `self.impl.forward`, whatever holds the layer."""
        owner = func.value if isinstance(func, ast.Attribute) else None
        return bool(self.bound) and isinstance(owner, ast.Attribute) and owner.attr == self.bound

    def _callees(self, file: SourceFile, func: ast.expr) -> tuple[Value, ...]:
        """What is called; a method of `self` is looked up from the class that is traced."""
        inference = self.context.inference
        if isinstance(func, ast.Attribute) and self._is_self(file, func):
            assert self.receiver is not None
            return tuple(
                inference.class_member(self.receiver, func.attr, instance=True, exact=True)
            )
        return inference.values(file, func)

    def _is_self(self, file: SourceFile, func: ast.Attribute) -> bool:
        if dotted(func.value) != "self" or self.receiver is None:
            return False
        around = self.context.inference.class_around(file, func)
        lineage = self.context.index.lineage(self.receiver).classes
        return around is not None and any(
            m == around.module and c.name == around.name for m, c in lineage
        )

    def _assigned(self, file: SourceFile, func: ast.Attribute, place: str, depth: int) -> list[Hop]:
        """What `self.x` was given in a method: a function, or one of two by a condition."""
        if not self._is_self(file, func):
            return []
        assert self.receiver is not None
        hops: list[Hop] = []
        for module, known in self.context.index.lineage(self.receiver).classes:
            for attribute in known.attributes.get(func.attr, ()):
                setter = (known.methods.get(attribute.method) or [None])[-1]  # type: ignore[list-item]
                where = self.file_of(module, setter, known) if setter is not None else None
                if where is not None:
                    hops += self._set_at(where, attribute.line, func.attr, place, depth)
            if hops:
                break
        return hops

    def _set_at(
        self, file: SourceFile, line: int, name: str, place: str, depth: int
    ) -> Iterator[Hop]:
        for node, parent in file.source.names.parents.items():
            is_it = isinstance(node, ast.Attribute) and node.attr == name and node.lineno == line
            if not is_it or not isinstance(parent, ast.Assign):
                continue
            for value in _branches(parent.value):
                tests = conditions_of(file.source.names, value)
                for found in self.context.inference.values(file, value):
                    hop = self._value(found, place, dotted(value) or name, depth)
                    if hop is not None:
                        set_at = f"set at {self.place(file, line)}"
                        note = f"{hop.note}; {set_at}" if hop.note else set_at
                        yield replace(_with_tests(hop, tests), note=note)

    def _launch(self, file: SourceFile, func: ast.Subscript, place: str) -> Hop | None:
        """`kernel[grid](...)`: a Triton kernel, where it is a name of a function."""
        for value in self.context.inference.values(file, func.value):
            hop = self._kernel(value, place)
            if hop is not None:
                return hop
        name = dotted(func.value)
        if "kernel" not in name:
            return None
        scope = file.source.names.scope_of(func)
        handed = any(isinstance(b.how, ast.arg) for b in scope.bindings.get(name, ()))
        note = "launched like a Triton kernel; "
        note += "the caller hands it over" if handed else "its definition cannot be followed"
        return Hop("unknown", name, place, origin="", level=Level.UNTESTED, note=note)

    def _kernel(self, value: Value, place: str) -> Hop | None:
        index = self.context.index
        if not isinstance(value, Ref) or value.kind != "function":
            return None
        functions = index.functions_of(value)
        if not any("jit" in d or "autotune" in d for f in functions for d in f.decorators):
            return None
        note = f"defined at {index.place(value.module, functions[-1].line)}"
        return Hop("triton kernel", str(value), place, origin=self.origin(value.module), note=note)

    def _operator(self, path: str, place: str, depth: int) -> Hop:
        name = ".".join(path.removeprefix("torch.ops.").split(".")[:2])
        behind = self.operators.in_python(name)
        if behind is None:
            steps = self.operators.native(name)
            in_tree = [s for s in steps if s.origin == "plugin tree"]
            note = "" if in_tree else _DECIDED_LATER
            return Hop("torch operator", name, place, origin="torch.ops", note=note, steps=steps)
        index = self.context.index
        note = f"registered at {index.place(behind.module, behind.line)}"
        hops = [
            hop
            for found in index.lookup(behind.module, behind.function)
            if isinstance(found, Ref) and found.kind == "function"
            for function in index.functions_of(found)[-1:]
            if (
                hop := self._into(
                    found.module, function, None, found.name, place, depth, anywhere=True
                )
            )
        ]
        if not hops:
            note += "; no call in its Python function leads to a kernel"
        return Hop("torch operator", name, place, origin=self.origin(behind.module), note=note,
                   steps=tuple(hops))  # fmt: skip

    def _component(self, file: SourceFile, call: ast.Call, judged: ContractCall, place: str) -> Hop:
        steps = self._provenance.of(file, call.func, self.receiver)
        return Hop(
            "component", judged.entry, place, (), (), judged.origin or "no contract", judged.level,
            f"{judged.verdict.value}: {judged.reason}", steps,
        )  # fmt: skip

    # What is called

    def _value(self, value: Value, place: str, path: str, depth: int) -> Hop | None:
        """A value that is called as a hop; None where it leads to no kernel."""
        index = self.context.index
        match value:
            case Method():
                return self._dispatch(value, place, path, depth)
            case Instance(of=Ref()):
                return self._called(value, place, path, depth)
            case Ref(kind="function"):
                for function in index.functions_of(value)[-1:]:
                    return self._into(value.module, function, None, value.name, place, depth)
            case Foreign() if value.path.startswith("torch.ops."):
                return self._operator(value.path, place, depth)
        return self._not_followed(value, place, path)

    def _not_followed(self, value: Value, place: str, path: str) -> Hop | None:
        """A component without a contract, or what looks like a kernel and cannot be followed."""
        made = Hop("unknown", path, place, origin="", level=Level.UNTESTED)
        word = path.rpartition(".")[2]
        match value:
            case Foreign() if value.path.partition(".")[0] in _COMPONENTS:
                note = "no contract is recorded for it"
                return replace(
                    made, kind="component", name=value.path, origin="imported", note=note
                )
            case Missing() if _ABOUT_ATTENTION.search(word):
                return replace(made, note=f"{value.module} does not define it")
            case Open() if self._is_kernel_like(word):
                return replace(made, note=value.reason)
        return None

    def _called(self, value: Instance, place: str, path: str, depth: int) -> Hop | None:
        """An object that is called: torch's modules run `forward` then."""
        assert isinstance(value.of, Ref)
        index = self.context.index
        if any(known.name == _DISPATCHED for _, known in index.lineage(value.of).classes):
            return self._dispatched(value.of, place, path, depth)
        for name in ("__call__", "forward") if index.is_tree(value.of.module) else ():
            for found in self.context.inference.class_member(
                value.of, name, instance=True, exact=value.exact
            ):
                if isinstance(found, Method):
                    return self._dispatch(found, place, path, depth)
        return None

    def _dispatched(self, ref: Ref, place: str, path: str, depth: int) -> Hop | None:
        """An operator that the target dispatches by platform; the plugin may have its own in its place."""
        index = self.context.index
        own = [
            below
            for below in index.derived_from(ref.module, ref.name)
            if any("register_oot" in d for d in getattr(index.class_of(below), "decorators", ()))
        ]
        hops: list[Hop] = []
        for each in own[:_MOST] or [ref]:
            for name, when in _WHEN_DISPATCHED.items():
                for found in self.context.inference.class_member(
                    each, name, instance=True, exact=True
                ):
                    if isinstance(found, Method) and found.owner.name != _DISPATCHED:
                        hop = self._variant(found, place, depth)
                        hops += [replace(hop, note=f"{hop.note}; {when}")] if hop else []
        if len(hops) < 2:
            return hops[0] if hops else None
        note = "one of these, as the target dispatches it"
        return Hop("function", path, place, origin="", note=note, steps=tuple(hops))

    def _variant(self, method: Method, place: str, depth: int) -> Hop | None:
        function, owner = method.function, method.owner
        name = f"{owner.name}.{function.name}"
        if function.only_raises and self.context.index.is_tree(owner.module):
            where = self.context.index.place(owner.module, function.line)
            return Hop(
                "refused", name, place, note=f"defined at {where}; raises NotImplementedError"
            )
        known = self.context.index.class_of(owner)
        hop = self._into(owner.module, function, known, name, place, depth)
        return replace(hop, tags=tags_of([], [function.name])) if hop is not None else None

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
            if (hop := self._one_of(method, owner, function, place, depth))
        ]
        if len(found) > _MOST:
            note = f"{len(found) - _MOST} more classes have the method; they are not followed"
            hops.append(Hop("unknown", path, place, origin="", level=Level.UNTESTED, note=note))
        if len(hops) < 2:
            return hops[0] if hops else None
        note = "one of these, by class"
        return Hop("function", path, place, origin="", note=note, steps=tuple(hops))

    def _one_of(
        self, method: Method, owner: Ref, function: Function, place: str, depth: int
    ) -> Hop | None:
        """A method as the class that is known has it, or a class of the plugin below."""
        known = self.context.index.class_of(owner)
        name = f"{owner.name}.{function.name}"
        hop = self._into(owner.module, function, known, name, place, depth)
        if hop is None or owner == method.owner:
            return hop
        base = method.owner.name
        note = f"of the plugin's class below {base}; which class it is is decided while it runs"
        return replace(hop, note=f"{hop.note}; {note}")

    def method(self, module: str, function: Function, owner: Class) -> tuple[Hop, ...]:
        """A method that the target calls, as `body` gives it, and what calls it again refers to it."""
        key = (module, function.line)
        if key in self._done:
            return self.body(module, function, owner) if key not in self._shown else ()
        steps = self._steps(key, module, function, owner, 0)
        if steps:
            self._shown.add(key)
        return steps

    def _into(
        self,
        module: str,
        function: Function,
        owner: Class | None,
        name: str,
        place: str,
        depth: int,
        *,
        anywhere: bool = False,
    ) -> Hop | None:
        """A function, where its body leads to a kernel or it is one itself.

        Args:
            module: Its module.
            function: The function.
            owner: Its class, None for a function of a module.
            name: Its name in the hop.
            place: Where it is called.
            depth: Calls on the way to it.
            anywhere: True to go into modules, too, that lead to no kernel as a rule.
        """
        index = self.context.index
        in_tree = index.is_tree(module)
        made = Hop("function", name, place, origin=self.origin(module),
                   note=f"defined at {index.place(module, function.line)}")  # fmt: skip
        if in_tree and self._refuses(function):
            return replace(made, kind="refused", note=f"{made.note}; raises NotImplementedError")
        if not in_tree and not anywhere and _ASIDE.match(module):
            return None
        if not in_tree and _BETWEEN_RANKS.match(module):
            return self._between_ranks(made, module)
        deeper = depth + 1 if in_tree else max(depth + 1, _DEEPEST - _DEEPEST_IN_TARGET)
        return self._entered(made, module, function, owner, deeper)

    def _entered(
        self, made: Hop, module: str, function: Function, owner: Class | None, depth: int
    ) -> Hop | None:
        """A function with what its body leads to, unless that was told or is being told."""
        key = (module, function.line)
        if key in self._active:
            return replace(made, kind="cycle", note=f"{made.note}; leads back to itself")
        if key in self._done:
            again = replace(made, note=f"{made.note}; shown above")
            return again if key in self._shown else None
        if depth > _DEEPEST:
            self.cut.append(made.name)
            return None
        steps = self._steps(key, module, function, owner, depth)
        if not steps:
            return self._end(made, module, function)
        self._shown.add(key)
        return replace(made, steps=steps)

    def _refuses(self, function: Function) -> bool:
        """True for a stand-in with a kernel's name that raises whatever it is given."""
        is_empty = function.only_raises and not function.is_abstract
        return is_empty and self._is_kernel_like(function.name)

    def _is_kernel_like(self, name: str) -> bool:
        return self._means_component(name) or _KERNEL_LIKE.search(name) is not None

    def _means_component(self, name: str) -> bool:
        return name in self._entry_names or _SCHEDULES.search(name) is not None

    def _steps(
        self, key: tuple[str, int], module: str, function: Function, owner: Class | None, depth: int
    ) -> tuple[Hop, ...]:
        self._active.add(key)
        steps = self.body(module, function, owner, depth)
        self._active.discard(key)
        self._done.add(key)
        # A function that calls nothing but itself again leads nowhere.
        return () if all(step.kind == "cycle" for step in steps) else steps

    def _end(self, made: Hop, module: str, function: Function) -> Hop | None:
        """A function that calls no kernel: one of the target's that is one, or a stand-in for one."""
        if self.context.index.is_tree(module):
            if not self._means_component(function.name):
                return None
            note = f"{made.note}; called like a component's entry point, and calls no kernel"
            return replace(made, kind="stand-in", note=note)
        if not _KERNELS.search(f"{module}.") or not _KERNEL_LIKE.search(function.name):
            return None
        return replace(made, kind="target", name=f"{module}.{function.name}")

    def _between_ranks(self, made: Hop, module: str) -> Hop | None:
        plain = made.name.rpartition(".")[2]
        if not re.search(r"gather|reduce|scatter|all_to_all|broadcast", plain):
            return None
        note = f"{made.note}; between ranks, not followed"
        return replace(made, kind="target", name=f"{module}.{made.name}", note=note)


def function_at(file: SourceFile, line: int) -> FunctionNode | None:
    """The function of a file whose `def` stands on a line."""
    for node in file.source.names.scopes:
        if isinstance(node, FunctionNode) and node.lineno == line:
            return node
    return None


def _inside(node: FunctionNode) -> Iterator[ast.AST]:
    """Parts of a function; of functions and classes inside it only their names."""
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        part = waiting.pop()
        yield part
        if not isinstance(part, FunctionNode | ast.ClassDef):
            waiting += ast.iter_child_nodes(part)


def _distinct(hops: list[Hop]) -> list[Hop]:
    """Hops without those that only say that another one of them was shown."""
    named: dict[tuple[str, str], Hop] = {}
    for hop in hops:
        named.setdefault((hop.name, hop.place), hop)
    return list(named.values())


def _branches(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.IfExp):
        yield from _branches(node.body)
        yield from _branches(node.orelse)
    else:
        yield node


def _with_tests(hop: Hop, tests: list[Test]) -> Hop:
    # A step that names several outcomes has their conditions below it.
    conditions = (*texts_of(tests), *hop.conditions)
    tags = dict.fromkeys((*tags_of(tests, [hop.name]), *hop.tags))
    return replace(hop, conditions=tuple(dict.fromkeys(conditions)), tags=tuple(tags))
