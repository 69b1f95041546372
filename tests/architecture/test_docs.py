"""The generated pages are what the code says, and the hand-written ones name what there is."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()
PROSE = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")


@pytest.mark.parametrize("name", sorted(GENERATOR.PAGES))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text("utf-8") == GENERATOR.render(name), "run `make docs`"


@pytest.mark.parametrize("name", PROSE)
def test_links_to_files_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / name).read_text("utf-8"))
    assert not [link for link in links if not (ROOT / link).exists()]


@pytest.mark.parametrize("name", PROSE)
def test_every_verb_that_is_named_exists(name: str) -> None:
    from attngate.hooks import cli

    text = (ROOT / name).read_text("utf-8")
    named = set(re.findall(r"(?:`|\$ )attngate ([a-z]+)", text))
    assert named <= set(cli.verbs())


@pytest.mark.parametrize("name", PROSE)
def test_a_named_source_file_exists(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    named = re.findall(r"`((?:hooks|validators|gpu_runner|tests|docs|benchmarks)/[\w./]+)`", text)
    assert not [path for path in named if not (ROOT / path).exists()]
