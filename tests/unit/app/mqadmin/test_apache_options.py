"""Each sub-command of RocketMQ has the option letters and long names that Apache's mqadmin 5.5.0 prints as its help.

tests/interop/test_mqadmin_with_ours.py compares the recorded help with Apache's tool.
"""

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from rocketbroker.app.mqadmin.cli import SUB_COMMANDS, load

HELP = Path(__file__).parents[3] / "golden" / "mqadmin" / "help-5.5.0.txt"


def apache_options() -> dict[str, set[str]]:
    """Return the options by sub-command; a long name with a blank, as in ``machine room``, is one word here."""
    found: dict[str, set[str]] = {}
    for section in HELP.read_text().split("$ mqadmin help ")[1:]:
        name = section.split("\n", 1)[0]
        options = re.findall(r"^ (-\w),(--[\w ]+?)(?: <arg>)?  ", section, re.MULTILINE)
        found[name] = {option for pair in options for option in (pair[0], _one_word(pair[1]))}
    return found


def _one_word(option: str) -> str:
    first, *others = option.split(" ")
    return first + "".join(word.capitalize() for word in others)


@pytest.mark.parametrize("name", [name for name in apache_options() if name in SUB_COMMANDS])
def test_it_has_each_option_of_apaches(name: str):
    options = {"-h", "--help"}
    for parameter in inspect.signature(load(name)).parameters.values():
        _, info = get_args(parameter.annotation)
        options |= {info.default, *(info.param_decls or ())}

    assert apache_options()[name] - options == set()


def test_the_recorded_help_is_whole():
    assert len(apache_options()) == 96
    assert apache_options()["clusterRT"] >= {"-m", "--machineRoom", "-p", "--printLog"}
