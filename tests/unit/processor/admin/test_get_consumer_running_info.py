import pytest

from rocketbroker.codec.remoting.headers.admin import GetConsumerRunningInfoRequestHeader
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RemotingSendError, RemotingTimeoutError
from rocketbroker.processor.admin.call_consumer import ConsumerCalls
from rocketbroker.processor.admin.get_consumer_running_info import GetConsumerRunningInfoProcessor
from tests.support.processor_calls import answered, call_async, recorded, refusal_async

HEADER = GetConsumerRunningInfoRequestHeader("CG_Live", "client")


@pytest.fixture
def processor(parts):
    return GetConsumerRunningInfoProcessor(ConsumerCalls(parts.config, parts.consumers))


def answers(connection, answer):
    """Let a client answer or fail; return the requests it got."""
    asked = []

    async def invoke(command, timeout_s):
        asked.append((command, timeout_s))
        if isinstance(answer, Exception):
            raise answer
        return answer

    connection.invoke = invoke
    return asked


async def test_recorded_requests_are_passed_on(parts, consumer, processor):
    online = offline = 0
    for command, theirs in recorded(307, GetConsumerRunningInfoRequestHeader):
        header = command.header
        if theirs.code:
            code, remark = await refusal_async(processor.process, header)
            offline += (code, remark) == (theirs.code, theirs.remark)
            continue
        connection = consumer(header.consumer_group, header.client_id, "GoldenTopic")
        asked = answers(connection, response(theirs.code, theirs.remark, theirs.fields, b"raw"))
        ours = await call_async(processor.process, header)
        assert ours == (theirs.code, theirs.remark, theirs.fields, b"raw")
        ((sent, timeout_s),) = asked
        assert (sent.code, sent.header) == (RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert timeout_s == 10.0
        parts.consumers.close_connection(connection)
        online += 1
    assert online > 5
    assert offline >= 1


async def test_the_answer_of_the_client_comes_back_as_it_is(consumer, processor):
    answer = response(1, "sorry", {"a": "b"}, b'{"jstack":"..."}')
    answers(consumer("CG_Live", "client", "T"), answer)
    assert await call_async(processor.process, HEADER) == answered(answer)


@pytest.mark.parametrize(
    ("error", "code", "named"),
    [
        (RemotingTimeoutError("no answer in 10 s"), ResponseCode.CONSUME_MSG_TIMEOUT, "Timeout: no answer in 10 s"),
        (RemotingSendError("gone"), ResponseCode.SYSTEM_ERROR, "Exception: gone"),
    ],
)
async def test_a_client_that_does_not_answer(consumer, processor, error, code, named):
    answers(consumer("CG_Live", "client", "T"), error)
    found_code, remark = await refusal_async(processor.process, HEADER)
    assert found_code == code
    assert "consumer <CG_Live> <client>" in remark
    assert named in remark


async def test_bad_group(processor):
    code, remark = await refusal_async(processor.process, GetConsumerRunningInfoRequestHeader("../up", "c"))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "The specified group" in remark
