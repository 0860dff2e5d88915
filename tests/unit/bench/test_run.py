"""The command bench/run: its list of benchmarks, and the pages that name them."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.harness import COMMANDS, application

ROOT = Path(__file__).parents[3]


def listed() -> set[str]:
    return set(re.findall(r'^names="(.*)"$', (ROOT / "bench" / "run").read_text(), re.MULTILINE)[0].split())


def test_the_list_is_that_of_the_harness() -> None:
    assert listed() == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_benchmark_describes_its_options(name: str) -> None:
    done = CliRunner().invoke(application(name), ["--help"])

    assert done.exit_code == 0, done.output
    assert {"profile_send": "--bursts", "scale": "--gigabits", "delayed": "--timer"}.get(name, "--") in done.output


def test_each_benchmark_of_a_page_or_a_module_is_in_the_list() -> None:
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("bench/*.*")]
    named = {name for page in pages for name in re.findall(r"bench/run (\w+)", page.read_text())}

    assert named - listed() == set()
