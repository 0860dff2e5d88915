import pytest

from rocketbroker.codec.remoting.headers.message import GetEarliestMsgStoretimeRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.get_earliest_msg_storetime import GetEarliestMsgStoretimeProcessor
from tests.support.fakes import FakeClock
from tests.support.golden_store import manifest
from tests.support.processor_calls import call, recorded, refusal
from tests.support.stores import make_store, message


def test_first_times_of_recorded_queues(golden_store):
    processor = GetEarliestMsgStoretimeProcessor(golden_store.queries)
    first: dict[tuple[str, int], int] = {}
    for entry in manifest("clean")["messages"]:
        if f"{entry['topic']}/{entry['queueId']}" in manifest("clean")["consumequeues"]:
            first.setdefault((entry["topic"], entry["queueId"]), entry["storeTimestamp"])
    for (topic, queue_id), time in first.items():
        answer = call(processor.process, GetEarliestMsgStoretimeRequestHeader(topic, queue_id))
        assert answer == (0, None, {"timestamp": str(time)}, b"")
    assert len(first) > 10


def test_queue_without_messages(golden_store):
    processor = GetEarliestMsgStoretimeProcessor(golden_store.queries)
    header = GetEarliestMsgStoretimeRequestHeader("Nope", 0)
    assert call(processor.process, header).fields == {"timestamp": "-1"}


async def test_recorded_requests(tmp_path):
    wanted = {}
    exchanges = list(recorded(32, GetEarliestMsgStoretimeRequestHeader))
    for command, theirs in exchanges:
        wanted[command.header.topic, command.header.queue_id] = int(theirs.fields["timestamp"])
    clock = FakeClock(min(wanted.values()))
    store = make_store(tmp_path, clock)
    await store.start()
    for (topic, queue_id), time in sorted(wanted.items(), key=lambda item: item[1]):
        clock.advance((time - clock.time_ms()) / 1000)
        store.appender.put_message(message(topic=topic, queue_id=queue_id))
    store.appender.dispatch()
    processor = GetEarliestMsgStoretimeProcessor(store.queries)
    assert [call(processor.process, command.header) == theirs for command, theirs in exchanges] == [True] * 6
    await store.stop()


@pytest.mark.parametrize(("topic", "queue_id"), [("../up", 0), ("", 0), ("T", -1)])
def test_bad_requests_are_named(golden_store, topic, queue_id):
    header = GetEarliestMsgStoretimeRequestHeader(topic, queue_id)
    code, remark = refusal(GetEarliestMsgStoretimeProcessor(golden_store.queries).process, header)
    assert code == ResponseCode.INVALID_PARAMETER
    assert "; use " in remark
