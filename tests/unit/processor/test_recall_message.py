import pytest

from rocketbroker.broker.timer.timer_rewrite import HandleScheduleMessage
from rocketbroker.codec.message.message_id import RecallMessageHandle, decode_recall_handle
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.message import RecallMessageRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.processor.recall_message import RecallMessageProcessor
from rocketbroker.processor.support.put_answers import MessagePuts
from tests.support.processor_calls import call, call_async, recorded, refusal
from tests.support.stores import make_store, read_queue

TOPIC = "GoldenTopic"


def processor_of(parts, store):
    parts.topic_configs.update(TopicConfig(TOPIC))
    schedule = HandleScheduleMessage(store.config, parts.clock, 18, lambda: 1000)
    return RecallMessageProcessor(
        parts.config,
        MessagePuts.of(store),
        parts.topic_configs,
        schedule,
        parts.clock,
        parts.stats,
    )


@pytest.fixture
def processor(parts, store):
    apply_updates([parts.config], {"recallMessageEnable": "true"})
    return processor_of(parts, store)


def header(parts, request_topic=TOPIC, **fields):
    handle = RecallMessageHandle(TOPIC, "broker-a", str(parts.clock.time_ms() + 5001), "KEY")._replace(**fields)
    return RecallMessageRequestHeader(request_topic, handle.encode(), "PG")


def waiting(store):
    store.appender.dispatch()
    return read_queue(store, "rmq_sys_wheel_timer", 0)


@pytest.mark.proves("Delayed messages", "timer messages recalled")
def test_recorded_recalls(parts, store, processor):
    answers = []
    for wanted, theirs in recorded(370, RecallMessageRequestHeader):
        handle = decode_recall_handle(wanted.header.recall_handle)
        parts.clock.advance((int(handle.deliver_ms) - 60_000 - parts.clock.time_ms()) / 1000)
        apply_updates([parts.config], {"recallMessageEnable": str(theirs.code == 0).lower()})
        if theirs.code:
            code, remark = refusal(processor.recall_message, wanted.header)
            assert code == theirs.code
            assert remark.startswith(str(theirs.remark))
            continue
        ours = call(processor.recall_message, wanted.header)
        assert (ours.code, ours.fields) == (0, theirs.fields)
        marker = waiting(store)[-1]
        assert marker.properties["TIMER_OUT_MS"] == str(int(handle.deliver_ms) - 1), "the slot of what it cancels"
        answers.append(ours)
    assert len(answers) == 3


def test_a_cancel_waits_for_the_slot_of_its_message(parts, store, processor):
    answer = call(processor.recall_message, header(parts))
    assert answer.fields == {"msgId": "KEY", "MSG_REGION": "DefaultRegion"}
    (marker,) = waiting(store)
    assert marker.body == b"0"
    assert marker.properties == {
        "TAGS": "_RECALL_TAG_",
        "TIMER_DEL_UNIQKEY": "KEY",
        "UNIQ_KEY": "KEY",
        "TIMER_DELIVER_MS": str(parts.clock.time_ms() + 5001),
        "BORN_TIMESTAMP": str(parts.clock.time_ms()),
        "PGROUP": "PG",
        "TIMER_OUT_MS": str(parts.clock.time_ms() + 5000),
        "REAL_TOPIC": TOPIC,
        "REAL_QID": "0",
    }


def test_no_group_is_fine(parts, store, processor):
    wanted = header(parts)
    wanted.producer_group = None
    assert call(processor.recall_message, wanted).code == 0


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        (
            {"topic": "Other"},
            "recall failed, topic not match: the handle is for Other, but the request for GoldenTopic",
        ),
        ({"broker_name": "broker-b"}, "the handle is for broker-b, but this is broker-a"),
        ({"deliver_ms": "1795255000000"}, "timestamp invalid: 0 ms are left"),
        ({"deliver_ms": "1795254999000"}, "timestamp invalid: -1000 ms are left"),
        ({"deliver_ms": "1795514200000"}, "less than 259200000 ms (timerMaxDelaySec)"),
        ({"deliver_ms": "soon"}, "timestamp invalid: 'soon' is not a time in ms"),
        ({"deliver_ms": "9" * 30}, "is not a time in ms"),
        ({"message_id": ""}, "recall handle is invalid"),
        ({"message_id": "a\x01b"}, "recall handle is invalid"),
    ],
)
def test_a_message_that_cannot_be_recalled_is_rejected(parts, store, processor, fields, remark):
    code, found = refusal(processor.recall_message, header(parts, **fields))
    assert code == ResponseCode.ILLEGAL_OPERATION
    assert remark in found
    assert store.appender.put_count == 0


def test_an_invalid_handle_is_rejected(parts, store, processor):
    code, remark = refusal(processor.recall_message, RecallMessageRequestHeader(TOPIC, "nonsense"))
    assert (code, remark[:24]) == (ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")


def test_a_topic_that_is_not_there(parts, store, processor):
    code, remark = refusal(processor.recall_message, header(parts, request_topic="Missing"))
    assert (code, remark) == (ResponseCode.TOPIC_NOT_EXIST, "recall failed, the topic[Missing] not exist")


def test_it_is_off_as_in_rocketmq(parts, store):
    code, remark = refusal(processor_of(parts, store).recall_message, header(parts))
    assert code == ResponseCode.NO_PERMISSION
    assert remark == "recall failed, operation is forbidden: recallMessageEnable is false"


def test_a_broker_without_write_permission_recalls_only_if_allowed(parts, store, processor):
    apply_updates([parts.config], {"brokerPermission": "4"})
    assert call(processor.recall_message, header(parts)).code == 0
    apply_updates([parts.config], {"allowRecallWhenBrokerNotWriteable": "false"})
    code, remark = refusal(processor.recall_message, header(parts))
    assert code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "brokerPermission is 4" in remark
    apply_updates([parts.config], {"brokerPermission": "6"})
    assert call(processor.recall_message, header(parts)).code == 0


async def test_under_sync_flush_it_is_on_disk_when_it_is_answered(parts, tmp_path):
    apply_updates([parts.config], {"recallMessageEnable": "true"})
    store = make_store(tmp_path / "sync", parts.clock, flush_disk_type="SYNC_FLUSH")
    await store.start()
    answer = await call_async(processor_of(parts, store).recall_message, header(parts))
    assert answer.code == 0
    assert store.flusher.flushed_offset == store.commit_log.max_offset > 0
    await store.stop()


def test_recalls_are_rejected_until_the_broker_accepts_sends(parts, store):
    begin = parts.clock.time_ms() + 1_000
    parts.config = parts.config.model_copy(
        update={"recall_message_enable": True, "start_accept_send_request_time_stamp": begin}
    )
    processor = processor_of(parts, store)

    code, remark = refusal(processor.recall_message, header(parts))
    assert (code, f"until {begin} " in remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
    parts.clock.advance(1)

    assert call(processor.recall_message, header(parts)).code == 0
