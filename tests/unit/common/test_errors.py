"""Errors that cross a process boundary, as those of pools and job queues do."""

import pickle

import pytest

from rocketbroker.client.errors import SendFailedError
from rocketbroker.common.errors import BrokerResponseError, MQFilterError, RocketBrokerError, StoreFullError


@pytest.mark.parametrize(
    "error",
    [
        StoreFullError("the disk is full"),
        MQFilterError(3, "unexpected token"),
        BrokerResponseError(17, "no topic"),
    ],
)
def test_a_pickled_error_keeps_its_text_and_fields(error: RocketBrokerError):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, vars(copy)) == (type(error), error.args, vars(error))


def test_a_pickled_failure_of_a_send_keeps_its_causes():
    error = SendFailedError("sent twice", [BrokerResponseError(2, "busy"), ValueError("no")])
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == "sent twice"
    assert [(type(each), str(each)) for each in copy.causes] == [(type(each), str(each)) for each in error.causes]
