"""Compares one call with what one build says about the entry point.

A difference is reported only where the source settles it. What it leaves open (`*args`, `**kwargs`,
an option that is a variable) is listed as a doubt instead.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from attngate.validators.resolve import short

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attngate.validators.contracts.schema import Constraint, Entry, Family, Returns
    from attngate.validators.names import FileNames
    from attngate.validators.signatures import Parameter, Signature

Place = ast.expr | ast.stmt | ast.keyword

_TUPLE_ATTRIBUTES = frozenset(dir(tuple))
_MIN_ORDER_HINTS = 2
_UNKNOWN_KEYWORD = "Leave it out, or look up what it is called here."


class Breach(Enum):
    """How a call can break a contract; the value is the code of the rule that reports it."""

    KEYWORD = "ATT101"
    ARGUMENTS = "ATT102"
    ORDER = "ATT103"
    UNPACKING = "ATT104"
    COMBINATION = "ATT105"
    MEANING = "ATT107"
    LSE = "ATT110"
    ROWS = "ATT111"
    OBJECT = "ATT112"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a call.

    Attributes:
        breach: How.
        subject: What, as a word that is the same for every build that finds it.
        node: Where.
        seen: The observation that says so.
        message: One sentence.
        expected: What the contract says.
        observed: What the source says.
        advice: What to do.
        certain: False where the build was not observed to refuse it.
    """

    breach: Breach
    subject: str
    node: Place
    seen: str
    message: str
    expected: str = ""
    observed: str = ""
    advice: str = ""
    certain: bool = True


@dataclass(eq=False)
class Arguments:
    """What a call passes, its partial applications included.

    Attributes:
        call: The call itself.
        positional: Expressions by position.
        keywords: Expressions by keyword, with the node to point at.
        open_positions: True after `*args`.
        open_keywords: True after a `**mapping` that is not visible.
    """

    call: ast.Call
    positional: list[ast.expr] = field(default_factory=list)
    keywords: dict[str, tuple[ast.expr, Place]] = field(default_factory=dict)
    open_positions: bool = False
    open_keywords: bool = False

    def add(self, call: ast.Call, args: Sequence[ast.expr], names: FileNames) -> None:
        """Add the arguments of one call; later ones win over earlier ones of the same keyword."""
        for argument in args:
            if isinstance(argument, ast.Starred):
                self.open_positions = True
            elif not self.open_positions:
                self.positional.append(argument)
        for keyword in call.keywords:
            if keyword.arg is not None:
                self.keywords[keyword.arg] = (keyword.value, self._place(call, keyword))
                continue
            visible = _visible_mapping(keyword.value, names)
            if visible is None:
                self.open_keywords = True
            for name, value in (visible or {}).items():
                self.keywords[name] = (value, self._place(call, keyword))

    def _place(self, call: ast.Call, keyword: ast.keyword) -> Place:
        return keyword if call is self.call else self.call

    def doubts(self) -> list[str]:
        """What the call leaves open."""
        found = ["it passes `*args`"] if self.open_positions else []
        return found + (
            ["it passes `**kwargs` that are not visible here"] if self.open_keywords else []
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came out of comparing one call with one build."""

    problems: tuple[Problem, ...]
    doubts: tuple[str, ...]


def compare(
    arguments: Arguments, entry: Entry, signature: Signature, family: Family, names: FileNames
) -> Comparison:
    """Compare a call with a build's entry point.

    Args:
        arguments: What the call passes.
        entry: What the build says.
        signature: The signature that counts: the installed one where it is known, else `entry`'s.
        family: For the words that betray an argument's role.
        names: The names of the file the call stands in.
    """
    is_recorded = signature is entry.signature
    passed = bind(arguments, signature)
    problems = [
        *_unknown_keywords(arguments, entry, signature, is_recorded=is_recorded),
        *_wrong_counts(arguments, entry, signature, is_recorded=is_recorded),
        *_wrong_order(arguments, entry, signature, family),
        *_refused_combinations(arguments, entry, passed),
        *_wrong_meaning(arguments, entry, signature, names),
    ]
    doubts = arguments.doubts()
    if is_recorded:
        doubts += [
            f"`{name}` is not recorded for {entry.name}"
            for name in arguments.keywords
            if name in entry.unrecorded
        ]
    rows = possible_returns(arguments, entry, passed)
    for use in uses_of(arguments.call, names):
        problem = _wrong_use(use, rows, entry)
        if problem is not None:
            problems.append(problem)
        elif len(rows) > 1 and not all(_fits(use, row) for row in rows):
            doubts.append(f"how many values come back depends on {_options(rows)}")
    return Comparison(tuple(problems), tuple(dict.fromkeys(doubts)))


def bind(arguments: Arguments, signature: Signature) -> dict[str, ast.expr]:
    """Parameter to the expression that reaches it."""
    reached = zip(signature.positional, arguments.positional, strict=False)
    bound = {parameter.name: value for parameter, value in reached}
    return bound | {name: value for name, (value, _) in arguments.keywords.items()}


# Keywords and counts


def _unknown_keywords(
    arguments: Arguments, entry: Entry, signature: Signature, *, is_recorded: bool
) -> Iterator[Problem]:
    for name, (value, place) in arguments.keywords.items():
        if signature.named(name) is not None or signature.more_keywords:
            continue
        if is_recorded and name in entry.unrecorded:
            continue
        is_seen = name in entry.rejected or entry.complete or not is_recorded
        verb = "does not take" if is_seen else "is not known to take"
        yield Problem(
            Breach.KEYWORD,
            name,
            place,
            entry.rejected_seen if name in entry.rejected else entry.parameters_seen,
            f"{entry.name} {verb} the keyword `{name}`",
            expected=str(signature),
            observed=f"{name}={short(value)}",
            advice=(entry.rejected | entry.unlisted).get(name, _UNKNOWN_KEYWORD),
            certain=is_seen,
        )


def _wrong_counts(
    arguments: Arguments, entry: Entry, signature: Signature, *, is_recorded: bool
) -> Iterator[Problem]:
    positional = signature.positional
    given = len(arguments.positional)
    if given > len(positional) and not signature.more_positions:
        yield Problem(
            Breach.ARGUMENTS,
            "too many",
            arguments.positional[len(positional)],
            entry.parameters_seen,
            f"{entry.name} takes at most {len(positional)} arguments by position, {given} are passed",
            expected=str(signature),
            advice="Pass the later ones by keyword.",
            certain=entry.complete or not is_recorded,
        )
    for parameter in positional[:given]:
        if parameter.name in arguments.keywords and signature.named(parameter.name):
            yield _twice(arguments, entry, parameter)
    missing = (
        []
        if arguments.open_positions or arguments.open_keywords
        else _missing(arguments, signature)
    )
    if missing:
        listed = ", ".join(missing)
        yield Problem(
            Breach.ARGUMENTS,
            f"missing {listed}",
            arguments.call,
            entry.parameters_seen,
            f"{entry.name} is called without {listed}",
            expected=str(signature),
            advice="Pass what it requires; a keyword of another convention does not stand for it.",
        )


def _twice(arguments: Arguments, entry: Entry, parameter: Parameter) -> Problem:
    return Problem(
        Breach.ARGUMENTS,
        f"twice {parameter.name}",
        arguments.keywords[parameter.name][1],
        entry.parameters_seen,
        f"{entry.name} gets `{parameter.name}` by position and by keyword",
        advice="Pass it once.",
    )


def _missing(arguments: Arguments, signature: Signature) -> list[str]:
    reached = {p.name for p in signature.positional[: len(arguments.positional)]}
    reached |= arguments.keywords.keys()
    missing = [p.name for p in signature.parameters if p.required and p.name not in reached]
    if signature.more_keywords:
        # A keyword that the list lacks may be a listed parameter under the name that it really has.
        unlisted = [name for name in arguments.keywords if signature.named(name) is None]
        return missing if len(unlisted) < len(missing) else []
    return missing


# Positional order


def _wrong_order(
    arguments: Arguments, entry: Entry, signature: Signature, family: Family
) -> Iterator[Problem]:
    """Two or more arguments whose names say that they belong to another parameter's role."""
    hints: list[tuple[Parameter, ast.expr, str]] = []
    for parameter, value in zip(signature.positional, arguments.positional, strict=False):
        role = _role_of(value, family)
        if role and parameter.name in entry.roles:
            hints.append((parameter, value, role))
    wrong = [(p, v) for p, v, role in hints if entry.roles[p.name] != role]
    if len(wrong) < _MIN_ORDER_HINTS:
        return
    order = ", ".join(p.name for p in signature.positional if p.name in entry.roles)
    yield Problem(
        Breach.ORDER,
        "order",
        wrong[0][1],
        entry.parameters_seen,
        f"{entry.name} gets `{short(wrong[0][1])}` in the place of `{wrong[0][0].name}`: "
        "the positional order is another convention's",
        expected=f"positions in the order {order}",
        observed=", ".join(short(v) for _, v, _ in hints),
        advice="Pass cumulative and maximal lengths by keyword: the conventions order them differently.",
    )


def _role_of(value: ast.expr, family: Family) -> str:
    """What an argument holds by its name; "" where the name does not tell, or tells two things."""
    while isinstance(value, ast.Subscript):
        value = value.value
    name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
    if isinstance(value, ast.Constant) and type(value.value) is int:
        return "maximum"
    found = {
        role for role, words in family.role_words.items() if any(w in name.lower() for w in words)
    }
    return found.pop() if len(found) == 1 else ""


# Meaning


def _wrong_meaning(
    arguments: Arguments, entry: Entry, signature: Signature, names: FileNames
) -> Iterator[Problem]:
    """Numbers in the place of a flag: what an earlier generation took there, and true whatever it is."""
    placed = [(p.name, v) for p, v in zip(signature.positional, arguments.positional, strict=False)]
    placed += [(name, value) for name, (value, _) in arguments.keywords.items()]
    for name, value in placed:
        if name in entry.flags and _is_number(value, names):
            yield Problem(
                Breach.MEANING,
                name,
                value,
                entry.parameters_seen,
                f"{entry.name} takes a flag as `{name}`, and gets a number",
                expected="True or False",
                observed=short(value),
                advice="Pass what the flag asks; a number other than 0 always means True.",
            )


def _is_number(value: ast.expr, names: FileNames) -> bool:
    """True for integers written out, through a local name or an either-or of them."""
    if isinstance(value, ast.IfExp):
        return _is_number(value.body, names) and _is_number(value.orelse, names)
    if isinstance(value, ast.Name):
        scope = names.scope_of(value)
        reaching = names.reaching(value.id, scope, names.statement_of(value))
        values = [b.how for b in reaching if b.element is None and isinstance(b.how, ast.expr)]
        if not values or len(values) != len(reaching):
            return False
        return all(not isinstance(v, ast.Name) and _is_number(v, names) for v in values)
    known, found = literal(value)
    return known and type(found) is int


# Combinations


def _refused_combinations(
    arguments: Arguments, entry: Entry, passed: dict[str, ast.expr]
) -> Iterator[Problem]:
    for constraint in entry.constraints:
        if all(
            _holds(arguments, entry, passed, name, state)
            for name, state in constraint.refuses.items()
        ):
            yield _refused(arguments, entry, constraint)


def _refused(arguments: Arguments, entry: Entry, constraint: Constraint) -> Problem:
    given = [n for n in constraint.refuses if n in arguments.keywords]
    return Problem(
        Breach.COMBINATION,
        constraint.id,
        arguments.keywords[given[0]][1] if given else arguments.call,
        constraint.seen,
        f"{entry.name}: {constraint.message}",
        observed=", ".join(f"{n}={short(arguments.keywords[n][0])}" for n in given),
        advice=constraint.advice,
    )


def _holds(
    arguments: Arguments, entry: Entry, passed: dict[str, ast.expr], name: str, state: str
) -> bool:
    """True only where the source settles that the parameter has the state."""
    is_open = arguments.open_keywords or arguments.open_positions
    if name not in passed:
        is_default, value = _default(entry, name)
        if is_open or not is_default:
            return False
        return {"absent": value is None, "false": value is False}.get(state, False)
    is_known, value = literal(passed[name])
    if not is_known:
        return state == "passed"
    return {
        "passed": value is not None,
        "true": value is True,
        "false": value is False,
        "absent": value is None,
        "none": value is None,
        "given": value is not None,
        "nonzero": isinstance(value, int | float) and value != 0,
    }[state]


def literal(node: ast.expr) -> tuple[bool, Any]:
    """Whether an expression is a literal, and its value."""
    try:
        return True, ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False, None


def _default(entry: Entry, name: str) -> tuple[bool, Any]:
    parameter = next((p for p in entry.signature.parameters if p.name == name), None)
    if parameter is None or parameter.default is None:
        return False, None
    return literal(ast.parse(parameter.default, mode="eval").body)


# Returned values


@dataclass(frozen=True, slots=True)
class Use:
    """How the source uses what a call returns.

    Attributes:
        node: Where.
        count: Number of names it is unpacked into; None for an attribute of it.
        at_least: True where a starred name takes the rest, which is not in `count`.
        attribute: The attribute, "" for unpacking.
    """

    node: Place
    count: int | None
    at_least: bool = False
    attribute: str = ""


def uses_of(call: ast.Call, names: FileNames) -> Iterator[Use]:
    """The uses of a call's result that say how many values it must have."""
    node: ast.AST = call
    parent = names.parents.get(node)
    while isinstance(parent, ast.IfExp) and node is not parent.test:
        node, parent = parent, names.parents.get(parent)
    if isinstance(parent, ast.Attribute):
        yield Use(parent, None, attribute=parent.attr)
    elif isinstance(parent, ast.Assign):
        for target in parent.targets:
            if isinstance(target, ast.Tuple | ast.List):
                yield _unpacking(target, parent)
            elif isinstance(target, ast.Name):
                yield from _later_unpackings(target, names)


def _unpacking(target: ast.Tuple | ast.List, statement: ast.Assign) -> Use:
    starred = sum(isinstance(part, ast.Starred) for part in target.elts)
    return Use(statement, len(target.elts) - starred, at_least=bool(starred))


def _later_unpackings(target: ast.Name, names: FileNames) -> Iterator[Use]:
    """`a, b = result` after `result = call(...)`, where nothing else can be in `result`."""
    scope = names.scope_of(target)
    if len(scope.bindings.get(target.id, ())) != 1:
        return
    for node in ast.walk(scope.node):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Name)
            and node.value.id == target.id
        ):
            for part in node.targets:
                if isinstance(part, ast.Tuple | ast.List) and names.scope_of(node) is scope:
                    yield _unpacking(part, node)


def possible_returns(
    arguments: Arguments, entry: Entry, passed: dict[str, ast.expr]
) -> list[Returns]:
    """What can come back, as far as the options are visible."""
    rows: list[Returns] = []
    for row in entry.returns:
        states = [
            _option(arguments, entry, passed, name, wanted) for name, wanted in row.when.items()
        ]
        if False in states:
            continue
        rows.append(row)
        if None not in states:
            break
    return rows


def _option(
    arguments: Arguments, entry: Entry, passed: dict[str, ast.expr], name: str, wanted: bool
) -> bool | None:
    """Whether an option has the wanted truth; None where the source leaves it open."""
    if name in passed:
        is_known, value = literal(passed[name])
    elif arguments.open_keywords or arguments.open_positions:
        return None
    else:
        is_known, value = _default(entry, name)
    return bool(value) is wanted if is_known else None


def _fits(use: Use, row: Returns) -> bool:
    returned = len(row.values)
    if use.count is None:
        return returned == 1 or use.attribute in _TUPLE_ATTRIBUTES
    if returned == 1:
        return use.count < 2
    return returned >= use.count if use.at_least else returned == use.count


def _wrong_use(use: Use, rows: list[Returns], entry: Entry) -> Problem | None:
    if any(_fits(use, row) for row in rows):
        return None
    returned = " or ".join(_described(row) for row in rows)
    if use.count is None:
        done = f"`.{use.attribute}` of the result is taken"
    else:
        done = f"the result is unpacked into {use.count}{' or more' if use.at_least else ''}"
    return Problem(
        Breach.UNPACKING,
        "returned values",
        use.node,
        rows[0].seen,
        f"{entry.name} returns {returned} here, and {done}",
        expected=returned,
        observed=done,
        advice=_unpack_advice(entry),
    )


def _described(row: Returns) -> str:
    if len(row.values) == 1:
        return "one tensor"
    return f"{len(row.values)} values ({', '.join(row.values)})"


def _options(rows: Sequence[Returns]) -> str:
    return " and ".join(sorted({f"`{name}`" for row in rows for name in row.when}))


def _unpack_advice(entry: Entry) -> str:
    parts = []
    for row in entry.returns:
        options = ", ".join(f"{n}={v}" for n, v in row.when.items()) or "no option"
        parts.append(f"{options}: {_described(row)}")
    return "; ".join(parts) + "."


# Mappings


def _visible_mapping(node: ast.expr, names: FileNames) -> dict[str, ast.expr] | None:
    """The contents of a `**mapping` that is written out, or a name for one that never changes."""
    display: ast.expr | None = _never_changed(node, names) if isinstance(node, ast.Name) else node
    if (
        isinstance(display, ast.Call)
        and isinstance(display.func, ast.Name)
        and display.func.id == "dict"
    ):
        is_plain = not display.args and all(k.arg is not None for k in display.keywords)
        return {k.arg: k.value for k in display.keywords if k.arg} if is_plain else None
    if not isinstance(display, ast.Dict):
        return None
    found: dict[str, ast.expr] = {}
    for key, value in zip(display.keys, display.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            return None
        found[key.value] = value
    return found


def _never_changed(name: ast.Name, names: FileNames) -> ast.expr | None:
    """What a local name is bound to once and only read as `**name`, so that nobody can have changed it."""
    scope = names.scope_of(name)
    bindings = scope.bindings.get(name.id, [])
    if (
        len(bindings) != 1
        or not isinstance(bindings[0].how, ast.expr)
        or bindings[0].element is not None
    ):
        return None
    for node in ast.walk(scope.node):
        if isinstance(node, ast.Name) and node.id == name.id and isinstance(node.ctx, ast.Load):
            parent = names.parents.get(node)
            if not (isinstance(parent, ast.keyword) and parent.arg is None):
                return None
    return bindings[0].how
