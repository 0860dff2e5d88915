"""Sends of resendDlq: the errors after which a dead letter was certainly not sent."""

import pytest

from rocketbroker.app.mqadmin.dead_letters import Target, is_rejection
from rocketbroker.client.core.errors import InvalidMessageError, SendFailedError, TopicRouteError, broker_error
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RemotingConnectError, RemotingTimeoutError, StoreError

DISK_FULL = broker_error(ResponseCode.SERVICE_NOT_AVAILABLE, "disk full")
LOST = RemotingTimeoutError("no answer")


@pytest.mark.parametrize(
    ("error", "to", "rejected"),
    [
        (DISK_FULL, Target.group, True),
        (SendFailedError("3 tries", [DISK_FULL, DISK_FULL]), Target.group, True),
        (SendFailedError("2 tries", [LOST, DISK_FULL]), Target.group, False),
        (SendFailedError("none", []), Target.group, False),
        (LOST, Target.topic, False),
        (RemotingConnectError("refused"), Target.topic, True),
        (InvalidMessageError("empty"), Target.topic, True),
        (TopicRouteError("unknown"), Target.topic, True),
        (StoreError("local"), Target.topic, False),
        (broker_error(ResponseCode.SYSTEM_ERROR, "failed"), Target.topic, True),
        (broker_error(ResponseCode.SYSTEM_ERROR, "connection lost"), Target.client, False),
        (broker_error(ResponseCode.CONSUME_MSG_TIMEOUT, "10 s"), Target.client, False),
        (broker_error(ResponseCode.CONSUMER_NOT_ONLINE, "gone"), Target.client, True),
    ],
)
def test_only_a_certain_rejection_is_one(error: Exception, to: Target, rejected: bool):
    assert is_rejection(error, to) is rejected
