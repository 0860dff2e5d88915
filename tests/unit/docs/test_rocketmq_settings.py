"""The page of RocketMQ's settings has each of them once and tells the truth of it."""

import re

import pytest

from docs._ext import rocketmq_settings
from rocketbroker.common.config import known_properties
from rocketbroker.common.config.fields import fields_by_name, text_of, trait_of
from rocketbroker.common.config.known_properties import refusal
from rocketbroker.common.config.load import MODELS, resolve
from rocketbroker.common.config.properties_file import Entry

PAGE = rocketmq_settings.render()
_, ACT, REJECTED, WARNED, SILENT = PAGE.split("\n## ")


def names_in(section: str) -> list[str]:
    rows = [line.removeprefix("| ") for line in section.splitlines() if line.startswith(("- **", "| `", "| **"))]
    return [
        name for row in rows for name in re.findall(r"`([\w.]+)`", row if row[0] in "-*" else row.partition(" | ")[0])
    ]


def test_each_setting_of_rocketmq_stands_once():
    listed = [name for section in (ACT, REJECTED, WARNED, SILENT) for name in names_in(section)]
    twice = {name for model in MODELS for name in fields_by_name(model) if names_in(ACT).count(name) > 1}

    assert set(listed) == known_properties.names()
    assert {name for name in listed if listed.count(name) > 1} == twice


def test_the_counts_are_those_of_the_lists():
    counted = tuple(map(int, re.findall(r"\d+", PAGE.partition("Of ")[2].partition("\n")[0])))
    lists = [len(set(names_in(section))) for section in (ACT, REJECTED, WARNED, SILENT)]
    assert counted == (sum(lists), *lists)


def test_settings_without_effect_are_warnings_or_counted():
    warned, silent = names_in(WARNED), names_in(SILENT)
    result = resolve(MODELS, [Entry(name, "4711", f"line {name}") for name in [*warned, *silent]])

    assert [name for name in warned if not any(f": {name}=4711 " in line for line in result.warnings)] == []
    assert result.silent == silent


@pytest.mark.parametrize("name", names_in(REJECTED))
def test_switches_are_rejected_where_they_turn_something_on(name: str):
    assert refusal(name, "true")
    row = next(line for line in REJECTED.splitlines() if line.startswith(f"| `{name}` "))
    allowed = row.split(" | ")[1].strip("`")
    assert not refusal(name, "" if allowed.startswith("empty") else allowed)


def test_defaults_are_those_of_rocketmq():
    differ = {
        name: text_of(field.default)
        for model in MODELS
        for name, (_, field) in fields_by_name(model).items()
        if (known := known_properties.find(name)) and not trait_of(field).shown_default
        if text_of(field.default) != (known.default or "")
    }

    assert differ == {}
