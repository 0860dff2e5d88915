"""First offset of a queue."""

import pytest

from rocketbroker.client.consumer.start_offset import StartOffset
from rocketbroker.client.queue_offsets import QueueOffsets
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import ConsumeFromWhere
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.consumer_parts import QUEUE, MemoryOffsets

ANSWERS = {RequestCode.GET_MIN_OFFSET: 10, RequestCode.GET_MAX_OFFSET: 90, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: 50}


async def invoke(queue: MessageQueue, command: Command, timeout_s: float | None = None) -> Command:
    return response(header={"offset": str(ANSWERS[RequestCode(command.code)])})


@pytest.mark.parametrize(
    ("where", "offset"),
    [
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, 90),
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, 10),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 50),
    ],
)
async def test_a_new_group_starts_as_configured_and_others_where_they_stopped(where: ConsumeFromWhere, offset: int):
    start = StartOffset(where, 5, QueueOffsets(invoke))
    offsets = MemoryOffsets()
    assert await start.find(QUEUE, offsets) == offset
    assert offsets.persisted == {QUEUE: offset}, "where the next member continues"
    assert await start.find(QUEUE, MemoryOffsets({QUEUE: 0})) == 0
    retry = MessageQueue("%RETRY%CG", "broker-a", 0)
    assert await start.find(retry, MemoryOffsets()) == 10


async def test_a_topic_created_after_the_subscription_starts_at_its_first_message():
    start = StartOffset(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, 0, QueueOffsets(invoke))
    start.begin_at_first("T")
    assert await start.find(QUEUE, MemoryOffsets()) == 10
