"""Settings that both consumers share."""

import pytest

from rocketbroker.client.consumer.consumer_settings import ConsumerOptions, ConsumerSettings
from rocketbroker.client.push_consumer import PushConsumer


def test_each_option_is_a_setting():
    own = {"consume_type", "orderly"}
    assert ConsumerOptions.__annotations__.keys() == set(ConsumerSettings.__struct_fields__) - own


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="pull_batch"):
        PushConsumer("CG", "127.0.0.1:1", pull_batch=3)  # type: ignore[call-arg]
