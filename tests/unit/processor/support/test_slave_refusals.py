from typing import Any

import pytest

from rocketbroker.codec.remoting.handler import MethodTable
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.slave_refusals import with_slave_refusals
from tests.support.fakes import FakeConnection


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        (RequestCode.SEND_MESSAGE, ResponseCode.SYSTEM_BUSY),
        (RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY),
        (RequestCode.SEND_BATCH_MESSAGE, ResponseCode.SYSTEM_BUSY),
        (RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SYSTEM_BUSY),
        (RequestCode.SEND_REPLY_MESSAGE_V2, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RequestCode.END_TRANSACTION, ResponseCode.SLAVE_NOT_AVAILABLE),
        (RequestCode.RECALL_MESSAGE, ResponseCode.SLAVE_NOT_AVAILABLE),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, ResponseCode.SYSTEM_ERROR),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, ResponseCode.SYSTEM_ERROR),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResponseCode.SYSTEM_ERROR),
    ],
    ids=lambda value: value.name,
)
def test_changes_are_rejected_before_their_handler(code: RequestCode, refusal: ResponseCode):
    called: list[Any] = []
    table = MethodTable()

    def process(*call: Any) -> Command:
        called.append(call)
        return response()

    table.add(code, process)
    with pytest.raises(BrokerResponseError, match="this broker is a slave") as error:
        with_slave_refusals(table.routes)[code].process(FakeConnection(), request(code))
    assert (error.value.code, called) == (refusal, [])


def test_sends_come_alone():
    code = RequestCode.SEND_MESSAGE_V2

    class Runs:
        pass

    table = MethodTable()
    table.add(code, lambda *_: response(), SendMessageRequestHeaderV2, runs=Runs())  # type: ignore[arg-type]

    assert with_slave_refusals(table.routes)[code].runs is None


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.PULL_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.HEART_BEAT,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.DELETE_TOPIC_IN_BROKER,
    ],
    ids=lambda value: value.name,
)
def test_what_changes_no_message_is_served_as_it_is(code: RequestCode):
    table = MethodTable()
    table.add(code, lambda *_: response())

    assert with_slave_refusals(table.routes)[code] is table.routes[code]
