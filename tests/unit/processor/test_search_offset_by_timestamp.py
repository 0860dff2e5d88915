import pytest

from rocketbroker.codec.remoting.headers.message import SearchOffsetRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.processor.search_offset_by_timestamp import SearchOffsetByTimestampProcessor
from rocketbroker.processor.support.waiting_queries import WaitingQueries
from tests.support.golden_store import manifest
from tests.support.processor_calls import call_async, recorded, refusal_async

QUEUE = [m for m in manifest("clean")["messages"] if (m["topic"], m["queueId"]) == ("StFill", 0)]


@pytest.fixture
def processor(golden_store):
    return SearchOffsetByTimestampProcessor(golden_store.queries, WaitingQueries(BrokerConfig()))


@pytest.mark.parametrize("boundary", [None, "LOWER", "lower", ""])
async def test_first_message_at_or_after_a_time(processor, boundary):
    for wanted in QUEUE[::13]:
        time = wanted["storeTimestamp"]
        first = min(m["queueOffset"] for m in QUEUE if m["storeTimestamp"] >= time)
        answer = await call_async(processor.process, SearchOffsetRequestHeader("StFill", 0, time, boundary))
        assert answer == (0, None, {"offset": str(first)}, b"")


async def test_last_message_not_after_a_time(processor):
    for wanted in QUEUE[::13]:
        time = wanted["storeTimestamp"]
        last = max(m["queueOffset"] for m in QUEUE if m["storeTimestamp"] <= time)
        answer = await call_async(processor.process, SearchOffsetRequestHeader("StFill", 0, time, "UPPER"))
        assert answer.fields == {"offset": str(last)}


async def test_queue_without_messages(processor):
    assert (await call_async(processor.process, SearchOffsetRequestHeader("Nope", 0, 1000))).fields == {"offset": "0"}


async def test_recorded_requests_ask_for_times_before_the_first_message(processor):
    seen = [
        await call_async(processor.process, command.header) == theirs
        for command, theirs in recorded(29, SearchOffsetRequestHeader)
    ]
    assert seen == [True] * 6


@pytest.mark.parametrize(
    ("header", "named"),
    [
        (SearchOffsetRequestHeader("../up", 0, 0), "'../up'"),
        (SearchOffsetRequestHeader("T", -1, 0), "queueId -1"),
        (SearchOffsetRequestHeader("T", 0, 0, "MIDDLE"), "boundaryType 'MIDDLE'"),
    ],
)
async def test_bad_requests_are_named(processor, header, named):
    code, remark = await refusal_async(processor.process, header)
    assert code == ResponseCode.INVALID_PARAMETER
    assert named in remark
    assert "; use " in remark
