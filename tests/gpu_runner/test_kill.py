"""Processes are killed at random moments: no pass that was not earned, and the next run works."""

import importlib.util
from pathlib import Path


def load_rounds():
    spec = importlib.util.spec_from_file_location(
        "kill_rounds", Path(__file__).parent / "kill_rounds.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_few_rounds():
    assert load_rounds().rounds(6, seed=7, report=False) == []
