"""Settings that both consumers share."""

from typing import Any

import pytest

from rocketbroker.client.consumer.consumer_settings import ConsumerOptions, ConsumerSettings
from rocketbroker.client.consumer.push_consumer import PushConsumer
from rocketbroker.client.core.errors import OptionError


def test_each_option_is_a_setting():
    own = {"consume_type", "orderly"}
    assert ConsumerOptions.__annotations__.keys() == set(ConsumerSettings.__struct_fields__) - own


def test_an_unknown_option_is_refused():
    with pytest.raises(OptionError, match=r"PushConsumer has no argument pull_batch; did you mean pull_batch_size\?"):
        PushConsumer("CG", "127.0.0.1:1", pull_batch=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("CONSUME_FROM_MIN_OFFSET", "which RocketMQ reads as CONSUME_FROM_LAST_OFFSET; give one of CONSUME_FROM_LAST"),
        ("timestamp", "CONSUME_FROM_TIMESTAMP without a time; give consume_timestamp_ms"),
    ],
)
def test_a_start_that_would_be_another_is_refused(where: Any, text: str):
    with pytest.raises(OptionError, match=text):
        PushConsumer("CG", "127.0.0.1:1", consume_from_where=where)
