from collections import Counter

import pytest

from rocketbroker.codec.remoting.headers.message import GetMaxOffsetRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.get_max_offset import GetMaxOffsetProcessor
from tests.support.golden_store import manifest
from tests.support.processor_calls import call, recorded, refusal
from tests.support.stores import message


def test_ends_of_recorded_queues(golden_store):
    processor = GetMaxOffsetProcessor(golden_store.queues)
    queues = manifest("clean")["consumequeues"]
    for name, queue in queues.items():
        topic, _, queue_id = name.rpartition("/")
        answer = call(processor.process, GetMaxOffsetRequestHeader(topic, int(queue_id)))
        assert answer == (0, None, {"offset": str(queue["entries"])}, b"")


def test_queue_without_messages_ends_at_0(store):
    processor = GetMaxOffsetProcessor(store.queues)
    assert call(processor.process, GetMaxOffsetRequestHeader("T", 3)).fields == {"offset": "0"}


def test_what_is_not_readable_yet_counts_when_asked_for(store):
    processor = GetMaxOffsetProcessor(store.queues)
    store.appender.put_message(message(topic="T"))
    assert call(processor.process, GetMaxOffsetRequestHeader("T", 0)).fields == {"offset": "0"}
    assert call(processor.process, GetMaxOffsetRequestHeader("T", 0, committed=False)).fields == {"offset": "1"}
    store.appender.dispatch()
    assert call(processor.process, GetMaxOffsetRequestHeader("T", 0)).fields == {"offset": "1"}


def test_recorded_requests_are_answered_in_the_same_shape(store):
    processor = GetMaxOffsetProcessor(store.queues)
    stored: Counter[tuple[str, int]] = Counter()
    seen = 0
    for command, theirs in recorded(30, GetMaxOffsetRequestHeader):
        header = command.header
        wanted = int(theirs.fields["offset"])
        # The store has as many messages as the recorded one had then.
        while stored[header.topic, header.queue_id] < wanted:
            store.appender.put_message(message(topic=header.topic, queue_id=header.queue_id))
            stored[header.topic, header.queue_id] += 1
        store.appender.dispatch()
        assert call(processor.process, header) == theirs
        seen += 1
    assert seen == 18


@pytest.mark.parametrize(("topic", "queue_id"), [("../up", 0), ("a/b", 0), ("", 0), ("T", -1)])
def test_bad_requests_are_named(store, topic, queue_id):
    code, remark = refusal(GetMaxOffsetProcessor(store.queues).process, GetMaxOffsetRequestHeader(topic, queue_id))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "; use " in remark
