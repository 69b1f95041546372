"""Signatures as data: of a source's function, or of a contract's text."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum


class Passing(Enum):
    """How a parameter may be passed."""

    POSITION = "by position"
    EITHER = "by position or keyword"
    KEYWORD = "by keyword"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One named parameter; `default` is its source text, None for a required one."""

    name: str
    passing: Passing = Passing.EITHER
    default: str | None = None

    @property
    def required(self) -> bool:
        """True without a default."""
        return self.default is None


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a callable.

    Attributes:
        parameters: The named ones, in order.
        more_positions: True with `*args`.
        more_keywords: True with `**kwargs`: then an unlisted keyword may be right.
    """

    parameters: tuple[Parameter, ...]
    more_positions: bool = False
    more_keywords: bool = False

    @property
    def positional(self) -> tuple[Parameter, ...]:
        """The parameters that a position can reach."""
        return tuple(p for p in self.parameters if p.passing is not Passing.KEYWORD)

    def named(self, keyword: str) -> Parameter | None:
        """The parameter that a keyword reaches, None where there is none."""
        for parameter in self.parameters:
            if parameter.name == keyword and parameter.passing is not Passing.POSITION:
                return parameter
        return None

    def __str__(self) -> str:
        """The signature as Python writes it."""
        parts: list[str] = []
        for parameter in self.parameters:
            if (
                parameter.passing is Passing.KEYWORD
                and "*" not in parts
                and not self.more_positions
            ):
                parts.append("*")
            default = f"={parameter.default}" if parameter.default is not None else ""
            parts.append(parameter.name + default)
        tail = ["*args"] * self.more_positions + ["**kwargs"] * self.more_keywords
        return f"({', '.join(parts + tail)})"


def signature_of(arguments: ast.arguments, *, bound: bool = False) -> Signature:
    """The signature of a function's syntax tree.

    Args:
        arguments: The node below `def`.
        bound: True to leave out the first parameter (`self`, `cls`).
    """
    only = [(a, Passing.POSITION) for a in arguments.posonlyargs]
    either = [(a, Passing.EITHER) for a in arguments.args]
    positional = only + either
    required = len(positional) - len(arguments.defaults)
    defaults = [None] * required + [ast.unparse(d) for d in arguments.defaults]
    found = [Parameter(a.arg, p, d) for (a, p), d in zip(positional, defaults, strict=True)]
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        text = ast.unparse(default) if default is not None else None
        found.append(Parameter(argument.arg, Passing.KEYWORD, text))
    return Signature(
        tuple(found[1:] if bound and positional else found),
        more_positions=arguments.vararg is not None,
        more_keywords=arguments.kwarg is not None,
    )


def parse_signature(text: str) -> Signature:
    """The signature written as between the parentheses of a `def`.

    Raises:
        ValueError: The text is no parameter list.
    """
    try:
        module = ast.parse(f"def f({text}): ...")
    except SyntaxError as error:
        raise ValueError(f"not a parameter list: {text!r}") from error
    function = module.body[0]
    assert isinstance(function, ast.FunctionDef)
    return signature_of(function.args)
