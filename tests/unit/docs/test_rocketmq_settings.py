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
ACT, WITHOUT_EFFECT = PAGE.split("## Settings without effect")


def test_each_setting_of_rocketmq_stands_once():
    listed = [name for line in PAGE.splitlines() if line.startswith("- **") for name in re.findall(r"`([\w.]+)`", line)]
    twice = {
        "listenPort",
        "bindAddress",
        "namesrvAddr",
        "grpcServerPort",
        "brokerConfigPath",
        "maxMessageSize",
        "metricsExporterType",
        "metricsLabel",
        "metricsPromExporterHost",
        "metricsPromExporterPort",
    }  # several servers have them

    assert set(listed) == known_properties.names()
    assert {name for name in listed if listed.count(name) > 1} <= twice


def test_settings_without_effect_are_named_in_a_warning():
    names = re.findall(r"`([\w.]+)`(?! \(rejected\))", WITHOUT_EFFECT)
    entries = [Entry(name, "false", f"line {name}") for name in names]

    warned = resolve(MODELS, entries).warnings
    assert {name for name in names if not any(f": {name} " in line for line in warned)} == set()


@pytest.mark.parametrize("name", re.findall(r"`(\w+)` \(rejected\)", WITHOUT_EFFECT))
def test_switches_are_rejected_where_they_turn_something_on(name: str):
    assert refusal(name, "true")


def test_defaults_are_those_of_rocketmq():
    differ = {
        name: text_of(field.default)
        for model in MODELS
        for name, (_, field) in fields_by_name(model).items()
        if (known := known_properties.find(name)) and not trait_of(field).shown_default
        if text_of(field.default) != (known.default or "")
    }

    assert differ == {}
