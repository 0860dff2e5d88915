import asyncio

import pytest

from rocketbroker.codec.remoting.remoting_command import request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.admin.call_consumer import ConsumerCalls


@pytest.fixture
def calls(parts):
    return ConsumerCalls(parts.config, parts.consumers)


async def test_a_consumer_that_does_not_answer_is_asked_a_few_things_at_a_time(consumer, calls):
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    silent, other = consumer("g", "silent"), consumer("g", "other")
    asked = []

    async def invoke(command, _timeout_s):
        asked.append(command)
        return await asyncio.shield(answer)

    async def answer_at_once(_command, _timeout_s):
        return response()

    silent.invoke, other.invoke = invoke, answer_at_once

    def call(client_id):
        return calls.call("g", client_id, request(RequestCode.CONSUME_MESSAGE_DIRECTLY, body=bytes(1 << 20)))

    waiting = [asyncio.ensure_future(call("silent")) for _ in range(600)]
    refused, _ = await asyncio.wait(waiting, timeout=0.01)
    assert (len(asked), len(refused)) == (16, 584)
    error = refused.pop().exception()
    assert isinstance(error, BrokerResponseError)
    assert error.code == ResponseCode.SYSTEM_BUSY
    assert error.remark.startswith("maxCallsPerConsumer: consumer <g> <silent> has not answered 16 requests yet")
    assert (await call("other")).code == ResponseCode.SUCCESS
    answer.set_result(response())
    await asyncio.wait(waiting)
    assert not calls._under_way
    assert (await call("silent")).code == ResponseCode.SUCCESS


async def test_a_consumer_that_is_behind_is_not_asked(consumer, calls):
    consumer("g", "slow").is_behind = True
    with pytest.raises(BrokerResponseError) as error:
        await calls.call("g", "slow", request(RequestCode.GET_CONSUMER_RUNNING_INFO))
    assert error.value.code == ResponseCode.SYSTEM_BUSY
    assert "writeBufferHighWaterMark" in error.value.remark
