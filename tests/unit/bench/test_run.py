"""The command bench/run: its list of benchmarks, and the pages that name them."""

import re
from importlib import import_module
from pathlib import Path

from bench.harness import COMMANDS

ROOT = Path(__file__).parents[3]


def listed() -> set[str]:
    return set(re.findall(r'^names="(.*)"$', (ROOT / "bench" / "run").read_text(), re.MULTILINE)[0].split())


def test_each_benchmark_of_the_list_has_a_main() -> None:
    assert [name for name in listed() if not callable(getattr(import_module(f"bench.{COMMANDS[name]}"), name))] == []


def test_each_benchmark_of_a_page_or_a_module_is_in_the_list() -> None:
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("bench/*.*")]
    named = {name for page in pages for name in re.findall(r"bench/run (\w+)", page.read_text())}

    assert named - listed() == set()
