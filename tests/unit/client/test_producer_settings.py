"""Settings that both producers share."""

import pytest

from rocketbroker.client.producer_settings import ProducerOptions, ProducerSettings
from rocketbroker.client.transaction_producer import LocalTransactionState, TransactionProducer


def test_each_option_is_a_setting():
    assert ProducerOptions.__annotations__.keys() == set(ProducerSettings.__struct_fields__)


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="send_timeout"):
        TransactionProducer(
            "PG",
            "127.0.0.1:1",
            check=lambda _message: LocalTransactionState.UNKNOWN,
            send_timeout=3,  # type: ignore[call-arg]
        )
