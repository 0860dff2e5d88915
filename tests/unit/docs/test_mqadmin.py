"""docs/reference/mqadmin.md is what the sub-commands say."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs._ext import mqadmin as docs
from rocketbroker.app.mqadmin.cli import SUB_COMMANDS, app

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "mqadmin.md"


def options_in_help(name: str) -> list[str]:
    """Return the options that ``mqadmin NAME -h`` lists, without -h."""
    text = CliRunner().invoke(app, [name, "-h"]).stdout.split("\nOptions:\n")[1]
    names = re.findall(r"^  (-\w|--[\w-]+)(?:, (--[\w-]+))?", text, re.MULTILINE)
    return [each for pair in names for each in pair if each and each not in {"-h", "--help"}]


@pytest.mark.parametrize("name", SUB_COMMANDS)
def test_each_sub_command_and_option_is_documented(name: str):
    section = PAGE.read_text().split(f"\n## {name}\n", 1)[1].split("\n## ")[0]
    options = docs.options_of(name)
    assert options
    for option in options:
        assert option.help in section
        for each in option.names:
            assert f"`{each}`" in section
    assert {each for option in options for each in option.names} == set(options_in_help(name))
