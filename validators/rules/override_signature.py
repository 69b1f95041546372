"""ATT203: overrides that do not take what their base class takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.callables import misfits
from attngate.validators.callers import callers_of, takes
from attngate.validators.context import Hit
from attngate.validators.index import Ref
from attngate.validators.model import Severity
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.callables import Taken
    from attngate.validators.callers import Callers
    from attngate.validators.context import Context, SourceFile
    from attngate.validators.index import Index
    from attngate.validators.symbols import Class, Function, Param


@rule("ATT203", "override-signature")
def override_signature(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A method overrides one of the target or the plugin and does not take the same arguments.

    Why:
        The target calls its own signature. A parameter that the override lacks is a TypeError at the
        first call that passes it; a parameter that only the override requires is one at every call.

    Instead:
        Give the override the base's parameters, with the base's names and defaults, or `**kwargs`.
    """
    index = context.index
    module = index.module_of(file.path)
    summary = index.summary(module)
    for known in summary.classes.values() if summary is not None else ():
        for name, functions in known.methods.items():
            if name.startswith("__") or len(functions) > 1:
                continue
            base = _overridden(index, Ref("class", module, known.name), name)
            if base is not None:
                yield from _compare(file, index, known, functions[0], *base)


def _overridden(index: Index, ref: Ref, name: str) -> tuple[str, Class, Function] | None:
    """The nearest base's method of the name; None where a base outside may have another one."""
    for module, known in index.lineage(ref).classes[1:]:
        functions = known.methods.get(name)
        if functions:
            return (module, known, functions[0]) if len(functions) == 1 else None
        if name in known.attributes:
            return None
    return None


def _compare(
    file: SourceFile, index: Index, own: Class, override: Function, module: str, base_class: Class,
    base: Function,
) -> Iterator[Hit]:  # fmt: skip
    if _kind(override) != _kind(base) or override.star or base.star:
        return
    lacking, extra, renamed = _unlike(override, base)
    if not (lacking or extra or renamed):
        return
    callers = callers_of(index, Ref("class", index.module_of(file.path), own.name), module, base)
    renamed = {o: n for o, n in renamed.items() if index.passes_keyword(base.name, o)}
    lacking = [p for p in lacking if p.default is None or _is_passed(index, callers, base, p)]
    if _is_meant(index, own, module, base_class, base, {p.name for p in lacking} | set(renamed)):
        return
    if not _may_fail(callers, takes(own.name, override)):
        return
    for words, severity in _differences(lacking, extra, renamed, base, override):
        where = index.place(module, base.line)
        yield Hit(
            file.at(override.line),
            f"{own.name}.{override.name} {words} of {base_class.name}.{base.name}",
            advice="Take the same parameters as the base.",
            expected=_listed(base),
            observed=_listed(override),
            origin=where,
            severity=severity,
        )


def _unlike(override: Function, base: Function) -> tuple[list[Param], list[Param], dict[str, str]]:
    """What the override lacks, what it requires in addition, and what it calls otherwise."""
    ours, theirs = _passed(override), _passed(base)
    shared = {o.name for o in ours} & {t.name for t in theirs}
    if len(shared) * 2 < min(len(ours), len(theirs)) - 1:
        return [], [], {}  # another protocol under the same name, called by whoever wrote it
    renamed = _renamed(ours, theirs)
    extra = [p for p in ours if p.default is None and p.name not in {t.name for t in theirs}]
    extra = [p for p in extra if p.name not in renamed.values()]
    lacking = [p for p in theirs if p.name not in {o.name for o in ours} | renamed.keys()]
    if override.kwargs:
        lacking = [p for p in lacking if p.default is None and p.kind != "k"]
    return lacking, [] if base.kwargs else extra, renamed


def _is_meant(
    index: Index, own: Class, module: str, base_class: Class, base: Function, lacks: set[str]
) -> bool:
    """True where nobody else keeps to the base's signature, or nobody but the plugin calls it."""
    if index.is_broken_in_target(module, base_class.name, base.name, lacks):
        return True
    if index.is_tree(module):
        return _is_protocol_of_overrides(index, Ref("class", module, base_class.name), base)
    return base.name.startswith("_") and index.is_called_only_by(
        module, base_class, base.name, set(own.methods)
    )


def _is_protocol_of_overrides(index: Index, ref: Ref, base: Function) -> bool:
    """True for an abstract method of the plugin that none of several overrides keeps to."""
    if not (base.is_abstract or base.only_raises):
        return False
    below = [index.class_of(r) for r in index.derived_from(ref.module, ref.name)]
    overrides = [c.methods[base.name][0] for c in below if c is not None and base.name in c.methods]
    required = {p.name for p in _passed(base) if p.default is None}
    return len(overrides) > 1 and not any(
        required <= {p.name for p in _passed(override)} for override in overrides
    )


def _may_fail(callers: Callers, taken: Taken) -> bool:
    """True where a call of the target does not fit, or none is found and nobody knows who calls."""
    if not callers.live:
        return not callers.replaced
    return any(misfit for site in callers.live for misfit in misfits(site.call, taken))


def _is_passed(index: Index, callers: Callers, base: Function, param: Param) -> bool:
    """True where a call of the target gives a parameter that may be left out."""
    position = [p.name for p in _passed(base) if p.kind != "k"]
    by_position = param.name in position and any(
        len(site.call.args) > position.index(param.name) for site in callers.live
    )
    by_keyword = any(k.arg == param.name for site in callers.live for k in site.call.keywords)
    return by_position or by_keyword or index.passes_keyword(base.name, param.name)


def _differences(
    lacking: list[Param],
    extra: list[Param],
    renamed: dict[str, str],
    base: Function,
    override: Function,
) -> Iterator[tuple[str, Severity | None]]:
    if lacking:
        listed = ", ".join(f"`{p.name}`" for p in lacking)
        required = any(p.default is None for p in lacking)
        weight = None if required else Severity.WARNING
        yield (
            f"does not take {listed}, a parameter"
            if len(lacking) == 1
            else (f"does not take {listed}, parameters"),
            weight,
        )
    if extra:
        yield f"requires {', '.join(f'`{p.name}`' for p in extra)}, which is no parameter", None
    if renamed and not override.kwargs and not base.kwargs:
        listed = ", ".join(f"`{new}` for `{old}`" for old, new in renamed.items())
        yield f"has other names, {listed}, and the target passes them by keyword: those", None


def _kind(function: Function) -> str:
    for name in ("staticmethod", "classmethod", "property", "cached_property"):
        if function.has_decorator(name):
            return name
    return ""


def _passed(function: Function) -> list[Param]:
    """The parameters a caller passes, without the one that is bound."""
    skips = 0 if function.has_decorator("staticmethod") else 1
    return list(function.params[skips:])


def _renamed(ours: list[Param], theirs: list[Param]) -> dict[str, str]:
    """Parameters at the same position under another name, where nothing else shifted."""
    if len(ours) < len(theirs):
        return {}
    pairs = [(t.name, o.name) for t, o in zip(theirs, ours, strict=False) if t.kind != "k"]
    changed = {old: new for old, new in pairs if old != new}
    names = {o.name for o in ours}
    return changed if not any(old in names for old in changed) else {}


def _listed(function: Function) -> str:
    parts = [p.name if p.default is None else f"{p.name}={p.default}" for p in function.params]
    parts += [f"*{function.star}"] * bool(function.star) + [f"**{function.kwargs}"] * bool(
        function.kwargs
    )
    return f"{function.name}({', '.join(parts)})"[:300]
