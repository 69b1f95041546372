"""The linters and type checkers, as tests, so that there is one command for everything."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sys.executable).parent


def output_of_a_clean_run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [SCRIPTS / program, *arguments], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_ruff_check() -> None:
    output_of_a_clean_run("ruff", "check", "--no-cache", ".")


def test_ruff_format() -> None:
    assert "already formatted" in output_of_a_clean_run(
        "ruff", "format", "--check", "--no-cache", "."
    )


def test_mypy_strict() -> None:
    assert "Success: no issues found" in output_of_a_clean_run("mypy")


def test_the_worker_keeps_to_python_3_10() -> None:
    # The worker runs in the user's interpreter. vermin knows attributes too, which ruff does not.
    said = output_of_a_clean_run(
        "vermin", "-t=3.10-", "--no-tips", "--eval-annotations", "gpu_runner/worker"
    )
    assert "Minimum required versions" in said
