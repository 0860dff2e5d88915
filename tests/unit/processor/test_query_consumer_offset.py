import pytest

from rocketbroker.codec.remoting.headers.message import QueryConsumerOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import request, to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.query_consumer_offset import QueryConsumerOffsetProcessor
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner
from tests.support.fakes import FakeConnection


@pytest.fixture
def ask(parts, store):
    def ask(group, topic, queue_id, set_zero=None):
        header = QueryConsumerOffsetRequestHeader(group, topic, queue_id, set_zero)
        command = request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        answer = QueryConsumerOffsetProcessor(parts.offsets, store.fetcher).process(FakeConnection(), command)
        return answer.code, answer.remark, to_ext_fields(answer.header)

    return ask


def test_committed_offset(parts, ask):
    parts.offsets.commit("g", "T", 1, 42)
    assert ask("g", "T", 1) == (0, None, {"offset": "42"})


def test_committed_offset_of_0(parts, ask):
    parts.offsets.commit("g", "T", 1, 0)
    assert ask("g", "T", 1, set_zero=False) == (0, None, {"offset": "0"})


def test_new_group_starts_at_0_while_the_first_message_is_there(ask, store):
    store.appender.put_message(MessageExtBrokerInner("T", 0, b"body"))
    store.appender.dispatch()
    assert ask("g", "T", 0) == (0, None, {"offset": "0"})
    assert ask("g", "T", 0, set_zero=True) == (0, None, {"offset": "0"})
    remark = "Not found, do not set to zero, maybe this group boot first"
    assert ask("g", "T", 0, set_zero=False) == (ResponseCode.QUERY_NOT_FOUND, remark, {})


@pytest.mark.parametrize(("topic", "queue_id"), [("Empty", 0), ("T", 1), ("T", -1), ("../x", 0), ("", 0)])
def test_queue_without_messages(ask, store, topic, queue_id):
    store.appender.put_message(MessageExtBrokerInner("T", 0, b"body"))
    store.appender.dispatch()
    remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    assert ask("g", topic, queue_id) == (ResponseCode.QUERY_NOT_FOUND, remark, {})


def test_commit_of_nothing_counts_as_none(parts, ask):
    parts.offsets.commit("g", "T", 0, -1)
    assert ask("g", "T", 0)[0] == ResponseCode.QUERY_NOT_FOUND
