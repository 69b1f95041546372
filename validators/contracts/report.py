"""Turns judged calls into what rules yield."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.context import Hit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context
    from attngate.validators.contracts.match import Breach


def hits_of(context: Context, breach: Breach) -> Iterator[Hit]:
    """Everything that breaks a contract in one way."""
    for judgement in context.judge.judgements:
        for judged in judgement.problems:
            problem = judged.problem
            if problem.breach is breach:
                yield Hit(
                    judged.location,
                    problem.message,
                    advice=problem.advice,
                    expected=problem.expected,
                    observed=problem.observed,
                    origin=judged.origin,
                    level=judged.level,
                    severity=judged.severity,
                )
