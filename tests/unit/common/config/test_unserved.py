"""Every setting of RocketMQ has one state: it acts, is rejected, warned of, or has no counterpart."""

from collections import Counter

import pytest

from rocketbroker.common.config import known_properties
from rocketbroker.common.config.fields import fields_by_name
from rocketbroker.common.config.known_properties import is_refused_setting
from rocketbroker.common.config.load import MODELS
from rocketbroker.common.config.unserved import EXPECTED, REASONS, REJECTED, REJECTED_DEFAULTS, is_default, reason_of

ACTING = {name for model in MODELS for name in fields_by_name(model)}
SWITCHES = {name for name in known_properties.names() - ACTING - REJECTED.keys() if is_refused_setting(name)}


def test_each_setting_has_exactly_one_state() -> None:
    states = Counter(
        [
            *ACTING & known_properties.names(),
            *SWITCHES,
            *REJECTED,
            *EXPECTED,
            *(name for reason in REASONS for name in reason.names),
        ]
    )
    stateless = known_properties.names() - states.keys()

    assert sorted(stateless) == [], "name them in unserved.py, or in the model that serves them"
    assert [name for name, count in states.items() if count > 1] == [], "a model serves them: remove them here"
    assert [name for name in states if name not in known_properties.names()] == [], "RocketMQ has no such setting"


def test_a_setting_has_one_reason() -> None:
    reason = reason_of("sendMessageThreadPoolNums")
    assert reason is not None
    assert reason.title == "Thread pools and their queues"
    assert reason_of("coldDataFlowControlEnable") is reason_of("brokerName") is None


@pytest.mark.parametrize("name", REJECTED_DEFAULTS)
def test_defaults_of_rejected_settings_are_rocketmqs(name: str) -> None:
    known = known_properties.find(name)
    assert known is not None
    assert REJECTED_DEFAULTS[name] == known.default


@pytest.mark.parametrize(
    ("value", "default", "same"),
    [
        ("true", "true", True),
        (" TRUE ", "true", True),
        ("10", "10.0", True),
        ("010", "10", True),
        ("", None, True),
        ("11", "10", False),
        ("x", "10", False),
        ("true", None, False),
        ("false", "true", False),
    ],
)
def test_defaults_are_compared_by_value(value: str, default: str | None, same: bool) -> None:
    assert is_default(value, default) is same
