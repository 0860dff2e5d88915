"""Settings that both producers share."""

import pytest

from rocketbroker.client.errors import OptionError
from rocketbroker.client.producer_settings import ProducerOptions, ProducerSettings
from rocketbroker.client.transaction_producer import LocalTransactionState, TransactionProducer


def test_each_option_is_a_setting():
    assert ProducerOptions.__annotations__.keys() == set(ProducerSettings.__struct_fields__)


def test_an_unknown_option_is_refused():
    with pytest.raises(
        OptionError, match=r"TransactionProducer has no argument send_timeout; did you mean send_timeout_s\?"
    ):
        TransactionProducer(
            "PG",
            "127.0.0.1:1",
            check=lambda _message: LocalTransactionState.UNKNOWN,
            send_timeout=3,  # type: ignore[call-arg]
        )
