"""The requests that a slave rejects, and those that it serves as a master does."""

import inspect
from pathlib import Path

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from tests.support.fakes import FakeConnection

REFUSALS = {
    Code.SEND_MESSAGE: ResponseCode.SYSTEM_BUSY,
    Code.SEND_MESSAGE_V2: ResponseCode.SYSTEM_BUSY,
    Code.SEND_BATCH_MESSAGE: ResponseCode.SYSTEM_BUSY,
    Code.CONSUMER_SEND_MSG_BACK: ResponseCode.SYSTEM_BUSY,
    Code.POP_MESSAGE: ResponseCode.SYSTEM_BUSY,
    Code.PEEK_MESSAGE: ResponseCode.SYSTEM_BUSY,
    Code.ACK_MESSAGE: ResponseCode.SYSTEM_BUSY,
    Code.BATCH_ACK_MESSAGE: ResponseCode.SYSTEM_BUSY,
    Code.CHANGE_MESSAGE_INVISIBLETIME: ResponseCode.SYSTEM_BUSY,
    Code.SEND_REPLY_MESSAGE: ResponseCode.SERVICE_NOT_AVAILABLE,
    Code.SEND_REPLY_MESSAGE_V2: ResponseCode.SERVICE_NOT_AVAILABLE,
    Code.END_TRANSACTION: ResponseCode.SLAVE_NOT_AVAILABLE,
    Code.RECALL_MESSAGE: ResponseCode.SLAVE_NOT_AVAILABLE,
    Code.RESUME_CHECK_HALF_MESSAGE: ResponseCode.SYSTEM_ERROR,
    Code.UPDATE_AND_CREATE_TOPIC: ResponseCode.SYSTEM_ERROR,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: ResponseCode.SYSTEM_ERROR,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ResponseCode.SYSTEM_ERROR,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: ResponseCode.SYSTEM_ERROR,
    Code.SET_MESSAGE_REQUEST_MODE: ResponseCode.SYSTEM_ERROR,
    Code.DELETE_SUBSCRIPTIONGROUP: ResponseCode.SYSTEM_ERROR,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: ResponseCode.SYSTEM_ERROR,
    Code.CLONE_GROUP_OFFSET: ResponseCode.SYSTEM_ERROR,
    Code.AUTH_CREATE_USER: ResponseCode.SYSTEM_ERROR,
    Code.AUTH_UPDATE_USER: ResponseCode.SYSTEM_ERROR,
    Code.AUTH_DELETE_USER: ResponseCode.SYSTEM_ERROR,
    Code.AUTH_CREATE_ACL: ResponseCode.SYSTEM_ERROR,
    Code.AUTH_UPDATE_ACL: ResponseCode.SYSTEM_ERROR,
    Code.AUTH_DELETE_ACL: ResponseCode.SYSTEM_ERROR,
}


def routes(**properties: str) -> dict[int, Route]:
    # Neither the port nor the folder is used before the start.
    return BrokerController(broker_settings(0, Path(), "", properties=properties)).routes


MASTER, SLAVE = routes(), routes(brokerId="1", brokerRole="SLAVE")


@pytest.mark.parametrize("code", REFUSALS, ids=lambda code: code.name)
def test_a_slave_rejects_changes_before_their_handler(code: Code):
    # Without a header, which the handler would need.
    with pytest.raises(BrokerResponseError, match="this broker is a slave") as error:
        SLAVE[code].process(FakeConnection(), request(code))
    assert error.value.code == REFUSALS[code]
    assert SLAVE[code].audience is MASTER[code].audience


def test_sends_to_a_slave_come_alone():
    """A run has one answer for all; a refusal is the answer to each."""
    assert MASTER[Code.SEND_MESSAGE_V2].runs is not None
    assert SLAVE[Code.SEND_MESSAGE_V2].runs is None


@pytest.mark.parametrize("code", sorted(set(MASTER) - set(REFUSALS)), ids=lambda code: Code(code).name)
def test_a_slave_serves_the_other_requests(code: int):
    one, other = MASTER[code], SLAVE[code]
    assert inspect.ismethod(other.process), "no guard is in between"
    assert (other.process.__name__, other.header_type) == (one.process.__name__, one.header_type)


def test_master_and_slave_have_the_same_codes():
    assert set(SLAVE) == set(MASTER)
