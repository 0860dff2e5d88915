from typing import cast

import pytest

from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.remoting.headers.message import QueryMessageRequestHeader, ViewMessageRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.processor.query_message import QueryMessageRequests
from rocketbroker.processor.support.waiting_queries import WaitingQueries
from rocketbroker.store.read.message_queries import MessageQueries
from tests.support.golden_store import manifest, records
from tests.support.processor_calls import call_async, family, recorded, refusal_async
from tests.support.stores import message, put_forged

ALWAYS = 2**63 - 1
MESSAGES = manifest("clean")["messages"]
KEYED = next(message for message in MESSAGES if message["kind"] == "keyed3+props")


def header(key, max_num=64, topic="StPlain", begin=0, end=ALWAYS, **more):
    return QueryMessageRequestHeader(topic, key, max_num, begin, end, **more)


def offsets(answer):
    return [message.commit_log_offset for message in decode_messages(answer.body)]


@pytest.fixture
def processor(golden_store):
    return family(
        QueryMessageRequests,
        config=golden_store.config,
        queries=golden_store.queries,
        waiting=WaitingQueries(BrokerConfig()),
    )


@pytest.mark.parametrize("key", ["k1", "k2", "k3"])
@pytest.mark.parametrize("index_type", ["K", None, ""])
async def test_by_key(processor, key, index_type):
    answer = await call_async(processor.query_message, header(key, index_type=index_type))
    assert (answer.code, answer.remark) == (0, None)
    keyed = [m["phyOffset"] for m in MESSAGES if m["topic"] == "StPlain" and key in (m["keys"] or "").split()]
    assert offsets(answer) == sorted(keyed, reverse=True)
    assert KEYED["phyOffset"] in keyed
    last = manifest("clean")["index"][-1]
    assert answer.fields == {
        "indexLastUpdateTimestamp": str(last["endTimestamp"]),
        "indexLastUpdatePhyoffset": str(last["endPhyOffset"]),
    }


async def test_by_unique_id_in_both_forms(processor):
    new = header(KEYED["uniqKey"], index_type="U")
    old = header(KEYED["uniqKey"], max_num=0, unique_key_query=True)
    assert (
        offsets(await call_async(processor.query_message, new))
        == offsets(await call_async(processor.query_message, old))
        == [KEYED["phyOffset"]]
    )


@pytest.mark.proves("Queries", "by key in a range of time, over many index files, newest first, up to a limit")
async def test_newest_first_up_to_max_num(processor, golden_store):
    fill = [message for message in MESSAGES if message["topic"] == "StFill"]
    key = fill[0]["keys"].split()[0]
    wanted = sorted((m["phyOffset"] for m in fill if key in m["keys"].split()), reverse=True)
    assert offsets(await call_async(processor.query_message, header(key, topic="StFill"))) == wanted[:64]
    assert offsets(await call_async(processor.query_message, header(key, 1, topic="StFill"))) == wanted[:1]


async def test_nothing_found(processor):
    answer = await call_async(processor.query_message, header("nokey"))
    assert (answer.code, answer.body) == (ResponseCode.QUERY_NOT_FOUND, b"")
    assert set(answer.fields) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
    assert (await call_async(processor.query_message, header("k1", end=1000))).code == ResponseCode.QUERY_NOT_FOUND


async def test_recorded_requests_are_understood_and_answered_in_the_same_fields(processor):
    seen = 0
    for command, theirs in recorded(12, QueryMessageRequestHeader):
        ours = await call_async(processor.query_message, command.header)
        assert set(ours.fields) == set(theirs.fields)
        if theirs.code:
            # Java tells no progress of the index where nothing was found; the rest is equal.
            assert (ours.code, ours.remark, ours.body) == (theirs.code, theirs.remark, theirs.body)
        seen += 1
    assert seen == 11


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (header("k", topic="../up"), "'../up'"),
        (header("k", 0), "maxNum 0"),
        (header("k", -5), "maxNum -5"),
        (header("k", index_type="X"), "indexType 'X'"),
    ],
)
async def test_bad_requests_are_named(processor, wrong, named):
    code, remark = await refusal_async(processor.query_message, wrong)
    assert code == ResponseCode.INVALID_PARAMETER
    assert named in remark
    assert "; use " in remark


QUERIES = WaitingQueries(BrokerConfig())


@pytest.fixture
def processor_view_message_by_id(golden_store):
    return family(QueryMessageRequests, queries=golden_store.queries, waiting=QUERIES)


async def test_every_record_of_a_recorded_store(processor_view_message_by_id):
    for offset, record in records("clean"):
        assert await call_async(processor_view_message_by_id.view_message_by_id, ViewMessageRequestHeader(offset)) == (
            0,
            None,
            {},
            record,
        )


@pytest.mark.parametrize("offset", [1, -1, 999_999_999, 2**63 - 1, -(2**63)])
async def test_where_no_record_begins(processor_view_message_by_id, offset):
    answer = await call_async(processor_view_message_by_id.view_message_by_id, ViewMessageRequestHeader(offset))
    assert answer == (ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}", {}, b"")


async def test_a_record_that_somebody_wrote_into_a_body_is_not_answered(store):
    result = store.appender.put_message(message())
    store.appender.dispatch()
    forged = put_forged(store, store.commit_log.record(result.physical_offset))

    answer = await call_async(
        family(QueryMessageRequests, queries=store.queries, waiting=QUERIES).view_message_by_id,
        ViewMessageRequestHeader(forged),
    )

    assert answer == (ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {forged}", {}, b"")


async def test_recorded_failures(processor_view_message_by_id):
    failures = 0
    for command, theirs in recorded(33, ViewMessageRequestHeader):
        if theirs.code:
            assert await call_async(processor_view_message_by_id.view_message_by_id, command.header) == theirs
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
        await call_async(
            family(QueryMessageRequests, queries=cast("MessageQueries", Queries()), waiting=QUERIES).view_message_by_id,
            command.header,
        )
        == theirs
    )
