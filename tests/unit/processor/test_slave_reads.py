"""Pulls of a master with slaves, and of a slave with and without its master."""

import pytest

from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.frame import decode_frame
from rocketbroker.codec.remoting.handler import HELD
from rocketbroker.codec.remoting.headers.message import PullMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from tests.support.fakes import FakeConnection
from tests.support.processors import pull_processor
from tests.support.stores import count_as_far_back, message

SUSPEND, SUBSCRIPTION = 2, 4


@pytest.fixture
def filled(parts, store):
    """A store with three messages of topic T."""
    parts.topic_configs.update(TopicConfig("T", 2, 2))
    parts.subscription_groups.find("G")
    for body in (b"a", b"b", b"c"):
        store.appender.put_message(message(body, "T", 0))
    store.appender.dispatch()
    return store


def pull(parts, store, offset, *, flags=SUBSCRIPTION, queue_id=0):
    """Return code, suggested broker and next offset of a pull, or HELD."""
    header = PullMessageRequestHeader("G", "T", queue_id, offset, 32, flags, 0, 60_000, 100, subscription="*")
    processor = pull_processor(parts, store, PullRequestHoldService(parts.config))
    answer = processor.pull_message(FakeConnection(), request(RequestCode.PULL_MESSAGE, header))
    if not isinstance(answer, list):
        return answer
    command = decode_frame(memoryview(b"".join(answer))[4:])
    assert isinstance(command.header, dict)
    return command.code, int(command.header["suggestWhichBrokerId"]), int(command.header["nextBeginOffset"])


class State:
    """State of a slave, without a master at first."""

    master = False
    acting: int | None = None

    def has_master(self) -> bool:
        return self.master

    def acting_as(self) -> int | None:
        return self.acting


def configure(parts, **settings):
    parts.config = parts.config.model_copy(update=settings)
    parts.slave = State() if parts.config.broker_id else None


def test_a_master_without_readable_slaves_suggests_itself(parts, filled):
    count_as_far_back(filled)
    parts.subscription_groups.groups["G"].broker_id = 3

    assert pull(parts, filled, 0) == (ResponseCode.SUCCESS, 0, 3)


def test_a_master_sends_slow_consumers_to_a_slave(parts, filled):
    configure(parts, slave_read_enable=True)
    assert pull(parts, filled, 0) == (ResponseCode.SUCCESS, 0, 3)

    count_as_far_back(filled)
    assert pull(parts, filled, 0) == (ResponseCode.SUCCESS, 1, 3)
    parts.subscription_groups.groups["G"].which_broker_when_consume_slowly = 2
    assert pull(parts, filled, 0) == (ResponseCode.SUCCESS, 2, 3)
    assert pull(parts, filled, 3) == (ResponseCode.PULL_NOT_FOUND, 0, 3), "nothing was found far back"


def test_a_group_may_prefer_a_slave(parts, filled):
    configure(parts, slave_read_enable=True)
    parts.subscription_groups.groups["G"].broker_id = 1

    assert pull(parts, filled, 0) == (ResponseCode.SUCCESS, 1, 3)


def test_a_slave_serves_no_pulls_by_default(parts, filled):
    configure(parts, broker_id=1)

    with pytest.raises(BrokerResponseError, match="slaveReadEnable is false") as error:
        pull(parts, filled, 0)
    assert error.value.code == ResponseCode.SYSTEM_BUSY


def test_a_slave_leaves_consumers_to_a_living_master(parts, filled):
    configure(parts, broker_id=1, slave_read_enable=True)
    parts.slave.master = True

    assert pull(parts, filled, 0) == (ResponseCode.SUCCESS, 0, 3)
    assert pull(parts, filled, 3, flags=SUBSCRIPTION | SUSPEND) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 0, 3)

    count_as_far_back(filled)
    assert pull(parts, filled, 0) == (ResponseCode.SUCCESS, 1, 3), "far back is what slaves are for"


@pytest.mark.parametrize("offset", [-1, 9])
@pytest.mark.parametrize("queue_id", [0, 1])
def test_a_consumer_outside_the_copy_of_a_slave_keeps_its_offset_for_the_master(parts, filled, offset, queue_id):
    configure(parts, broker_id=1, slave_read_enable=True)
    parts.slave.master = True

    assert pull(parts, filled, offset, queue_id=queue_id) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 0, offset)


async def test_a_slave_without_master_holds_pulls_and_names_itself(parts, filled):
    configure(parts, broker_id=2, slave_read_enable=True)

    assert pull(parts, filled, 0) == (ResponseCode.SUCCESS, 2, 3)
    assert pull(parts, filled, 3) == (ResponseCode.PULL_NOT_FOUND, 2, 3)
    assert pull(parts, filled, 3, flags=SUBSCRIPTION | SUSPEND) is HELD


async def test_a_consumer_ahead_of_a_slave_does_not_go_back(parts, filled):
    configure(parts, broker_id=1, slave_read_enable=True)

    assert pull(parts, filled, 9) == (ResponseCode.PULL_NOT_FOUND, 1, 9)
    assert pull(parts, filled, 9, flags=SUBSCRIPTION | SUSPEND) is HELD
    assert pull(parts, filled, 9, queue_id=1) == (ResponseCode.PULL_NOT_FOUND, 1, 9), "it has nothing of the queue"
    assert pull(parts, filled, -1) == (ResponseCode.PULL_OFFSET_MOVED, 1, 0)


def test_an_acting_master_keeps_its_consumers(parts, filled):
    configure(parts, broker_id=1, slave_read_enable=True)
    for acting_as in (0, 1):
        parts.slave.acting = acting_as
        assert pull(parts, filled, 0) == (ResponseCode.SUCCESS, acting_as, 3)
        assert pull(parts, filled, 3) == (ResponseCode.PULL_NOT_FOUND, acting_as, 3)
