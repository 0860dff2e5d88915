from typing import cast

import pytest

from rocketbroker.codec.remoting.headers.message import ViewMessageRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.processor.support.waiting_queries import WaitingQueries
from rocketbroker.processor.view_message_by_id import ViewMessageByIdProcessor
from rocketbroker.store.read.message_queries import MessageQueries
from tests.support.golden_store import records
from tests.support.processor_calls import call_async, recorded
from tests.support.stores import message, put_forged

QUERIES = WaitingQueries(BrokerConfig())


@pytest.fixture
def processor(golden_store):
    return ViewMessageByIdProcessor(golden_store.queries, QUERIES)


async def test_every_record_of_a_recorded_store(processor):
    for offset, record in records("clean"):
        assert await call_async(processor.process, ViewMessageRequestHeader(offset)) == (0, None, {}, record)


@pytest.mark.parametrize("offset", [1, -1, 999_999_999, 2**63 - 1, -(2**63)])
async def test_where_no_record_begins(processor, offset):
    answer = await call_async(processor.process, ViewMessageRequestHeader(offset))
    assert answer == (ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}", {}, b"")


async def test_a_record_that_somebody_wrote_into_a_body_is_not_answered(store):
    result = store.appender.put_message(message())
    store.appender.dispatch()
    forged = put_forged(store, store.commit_log.record(result.physical_offset))

    answer = await call_async(
        ViewMessageByIdProcessor(store.queries, QUERIES).process, ViewMessageRequestHeader(forged)
    )

    assert answer == (ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {forged}", {}, b"")


async def test_recorded_failures(processor):
    failures = 0
    for command, theirs in recorded(33, ViewMessageRequestHeader):
        if theirs.code:
            assert await call_async(processor.process, command.header) == theirs
            failures += 1
    assert failures == 3


@pytest.mark.parametrize("number", range(5))
async def test_recorded_records_are_answered_as_they_lie_in_the_log(number):
    command, theirs = [each for each in recorded(33, ViewMessageRequestHeader) if not each[1].code][number]

    class Queries:
        @staticmethod
        async def read_queued_message(physical_offset):
            return theirs.body if physical_offset == command.header.offset else None

    assert (
        await call_async(ViewMessageByIdProcessor(cast("MessageQueries", Queries()), QUERIES).process, command.header)
        == theirs
    )
