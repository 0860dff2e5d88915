"""Sends against a running store: each answer names a record that holds what was sent."""

import asyncio
import inspect
import os
import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from rocketbroker.broker.timer.timer_rewrite import HandleScheduleMessage
from rocketbroker.codec.message.message_batch import encode_batch, split_batch
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import UniqueIds, decode_recall_handle
from rocketbroker.codec.message.message_properties import decode_properties, encode_properties
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.frame import decode_frame
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.send_message import SendMessageProcessor
from rocketbroker.processor.support import batch_send
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.put_answers import MessagePuts
from rocketbroker.processor.support.topic_target import RetryAndDlq, TopicTargets
from rocketbroker.store.commitlog.put_message import Acknowledgements, OnAcknowledged
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeConnection
from tests.support.processor_calls import recorded
from tests.support.stores import read_queue

Send = Callable[[Command], bytes]


def processor_of(parts: SimpleNamespace, store: MessageStore) -> SendMessageProcessor:
    return SendMessageProcessor(
        parts.config,
        MessagePuts.of(store),
        TopicTargets(parts.config, parts.topic_configs, parts.stats, parts.clock),
        RetryAndDlq(parts.subscription_groups, parts.topic_configs, parts.locks, parts.stats),
        UniqueIds(bytes([127, 0, 0, 1]), 4711, 0, parts.clock.time_ms),
        HandleScheduleMessage(store.config, parts.clock, 18, lambda: 1000),
        BrokerFastFailure(parts.config),
    )


@pytest.fixture
def send(parts: SimpleNamespace, store: MessageStore) -> Send:
    processor = processor_of(parts, store)

    def call(command: Command) -> bytes:
        answer = processor.send_message(FakeConnection(), command)
        assert isinstance(answer, bytes)
        store.appender.dispatch()
        return answer

    return call


def header(topic: str = "T", queue_id: int = 0, **fields: Any) -> SendMessageRequestHeader:
    properties = encode_properties(fields.pop("properties", {})).decode()
    return SendMessageRequestHeader("PG", topic, "TBW102", 4, queue_id, 0, 1_000, 7, properties, **fields)


def command(body: bytes = b"body", **fields: Any) -> Command:
    return request(RequestCode.SEND_MESSAGE, header(**fields), body)


def batch_command(body: bytes, **fields: Any) -> Command:
    sys_flag = fields.pop("sys_flag", 0)
    named = header(batch=True, **fields)
    named.sys_flag = sys_flag
    return request(RequestCode.SEND_BATCH_MESSAGE, named, body)


def fields_of(answer: Any) -> dict[str, str]:
    decoded = decode_frame(memoryview(answer)[4:])
    assert (decoded.code, bytes(decoded.body)) == (0, b"")
    fields = decoded.header
    assert isinstance(fields, dict)
    return fields


def stored(store: MessageStore, answer: bytes) -> list[MessageExt]:
    """The records whose ids an answer gives."""
    offsets = [int(each[16:], 16) for each in fields_of(answer)["msgId"].split(",")]
    records = [store.commit_log.record(offset) for offset in offsets]
    return [decode_record(record, decompress=False) for record in records if record is not None]


def refused(call: Callable[[Command], Any], wanted: Command) -> tuple[int, str]:
    with pytest.raises(BrokerResponseError) as error:
        call(wanted)
    return error.value.code, error.value.remark


@pytest.mark.parametrize(
    ("code", "header_type", "outcomes"),
    [
        (10, SendMessageRequestHeader, {"stored": 14, "refused as recorded": 6}),
        (310, SendMessageRequestHeaderV2, {"stored": 173}),
        (320, SendMessageRequestHeaderV2, {"stored": 5}),
    ],
)
def test_recorded_sends(
    parts: SimpleNamespace, send: Send, store: MessageStore, code: int, header_type: Any, outcomes: dict[str, int]
):
    """Each is answered as the recorded broker did, and stored byte by byte."""
    seen: Counter[str] = Counter()
    ends: Counter[tuple[str, int]] = Counter()
    for wanted, theirs in recorded(code, header_type):
        sent = decode_properties(wanted.header.properties.encode())
        # Delivery times count from when it was sent.
        parts.clock.advance((wanted.header.born_timestamp - parts.clock.time_ms()) / 1000)
        if theirs.code:
            assert refused(send, wanted)[0] == theirs.code
            seen["refused as recorded"] += 1
            continue
        answer = send(wanted)
        ours = fields_of(answer)
        messages = stored(store, answer)
        place = (messages[0].topic, messages[0].queue_id)
        assert ours.keys() == theirs.fields.keys()
        differing = {name for name in ours if ours[name] != theirs.fields[name]}
        own = set() if "UNIQ_KEY" in sent else {"transactionId"}
        assert differing <= {"msgId", "queueOffset"} | own
        assert ours["queueOffset"] == str(ends[place])
        check_stored(wanted, messages, sent)
        ends[place] += len(messages)
        seen["stored"] += 1
    assert seen == outcomes


def check_stored(wanted: Command, messages: list[MessageExt], sent: dict[str, str]) -> None:
    if wanted.header.batch:
        parts = split_batch(bytes(wanted.body))
        stored_parts = [(each.flag, each.body) for each in messages]
        assert stored_parts == list(zip(parts.flags, parts.bodies, strict=True))
        return
    (message,) = messages
    assert (message.body, message.flag) == (bytes(wanted.body), wanted.header.flag)
    assert message.properties.items() >= sent.items()
    assert message.properties["CLUSTER"] == "DefaultCluster"


def test_a_queue_offset_counts_within_its_queue(send: Send, store: MessageStore):
    answers = [fields_of(send(command(queue_id=queue))) for queue in (0, 1, 0)]
    assert [(each["queueId"], each["queueOffset"]) for each in answers] == [("0", "0"), ("1", "0"), ("0", "1")]
    assert len(read_queue(store, "T", 0)) == 2


def test_an_id_is_made_for_a_client_that_gives_none(send: Send, store: MessageStore):
    answers = [send(command()), send(command(properties={"UNIQ_KEY": "GIVEN"}))]
    made, given = (stored(store, answer)[0].properties["UNIQ_KEY"] for answer in answers)
    assert (len(made), given) == (32, "GIVEN")
    assert [fields_of(answer)["transactionId"] for answer in answers] == [made, given]


def test_a_negative_queue_is_any_of_the_topic(send: Send):
    assert {fields_of(send(command(queue_id=-1)))["queueId"] for _ in range(100)} == {"0", "1", "2", "3"}


def test_a_queue_that_is_not_there_is_rejected(send: Send):
    code, remark = refused(send, command(queue_id=4))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "queueId[4]" in remark
    assert "writeQueueNums:[4]" in remark


def test_a_topic_is_not_made_where_that_is_off(parts: SimpleNamespace, send: Send):
    parts.topic_configs.topics["TBW102"].perm = 6
    code, remark = refused(send, command())
    assert code == ResponseCode.TOPIC_NOT_EXIST
    assert "topic[T] not exist" in remark


def test_a_topic_that_may_not_be_written_is_rejected(parts: SimpleNamespace, send: Send):
    send(command())
    parts.topic_configs.update(TopicConfig("T", 4, 4, perm=4))
    assert refused(send, command())[0] == ResponseCode.NO_PERMISSION


def test_a_body_over_the_limit_is_rejected(send: Send, store: MessageStore):
    apply_updates([store.config], {"maxMessageSize": "10"})
    code, remark = refused(send, command(b"x" * 11))
    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert "11 bytes" in remark
    assert "maxMessageSize" in remark


def test_a_delayed_message_waits_in_the_schedule_topic(send: Send, store: MessageStore):
    (message,) = stored(store, send(command(properties={"DELAY": "3"})))
    assert (message.topic, message.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert message.properties["REAL_TOPIC"] == "T"


def test_a_timer_message_waits_in_the_timers_topic_and_can_be_recalled(
    parts: SimpleNamespace, send: Send, store: MessageStore
):
    deliver_ms = parts.clock.time_ms() + 5_700
    answer = send(command(topic="T", queue_id=2, properties={"TIMER_DELIVER_MS": str(deliver_ms), "UNIQ_KEY": "K"}))
    (message,) = stored(store, answer)
    assert (message.topic, message.queue_id) == ("rmq_sys_wheel_timer", 0)
    assert (message.properties["REAL_TOPIC"], message.properties["REAL_QID"]) == ("T", "2")
    fields = fields_of(answer)
    assert (fields["queueId"], fields["queueOffset"], fields["transactionId"]) == ("2", "0", "K")
    slot_ms = int(message.properties["TIMER_OUT_MS"])
    assert decode_recall_handle(fields["recallHandle"]) == ("T", "broker-a", str(slot_ms + 1), "K")


@pytest.mark.parametrize(("priority", "queue"), [("0", 0), ("2", 2), ("3", 3), ("4", 3), ("2147483647", 3)])
def test_a_priority_chooses_the_queue(
    parts: SimpleNamespace, send: Send, store: MessageStore, priority: str, queue: int
):
    """Whatever type the topic has, and whatever queue the client names."""
    parts.topic_configs.update(TopicConfig("T", 6, 4))
    for named in (-1, 1, 5):
        answer = send(command(queue_id=named, properties={"_SYS_MSG_PRIORITY_": priority}))
        (message,) = stored(store, answer)
        assert (message.topic, message.queue_id, message.priority) == ("T", queue, int(priority))
        assert fields_of(answer)["queueId"] == str(queue)


@pytest.mark.parametrize("value", ["-1", "x", "2147483648"])
def test_what_is_no_priority_chooses_nothing(send: Send, store: MessageStore, value: str):
    (message,) = stored(store, send(command(queue_id=1, properties={"_SYS_MSG_PRIORITY_": value})))
    assert (message.queue_id, message.properties["_SYS_MSG_PRIORITY_"]) == (1, value)


@pytest.mark.parametrize(
    ("other", "topic", "queue"),
    [
        ({"__SHARDINGKEY": "g"}, "T", 1),
        ({"DELAY": "3"}, "SCHEDULE_TOPIC_XXXX", 2),
        ({"TIMER_DELAY_SEC": "9"}, "rmq_sys_wheel_timer", 0),
        ({"TRAN_MSG": "true", "PGROUP": "P"}, "RMQ_SYS_TRANS_HALF_TOPIC", 0),
    ],
)
def test_a_message_of_another_type_loses_its_priority(
    send: Send, store: MessageStore, other: dict[str, str], topic: str, queue: int
):
    answer = send(command(queue_id=1, properties={"_SYS_MSG_PRIORITY_": "3", **other}))
    (message,) = stored(store, answer)
    assert (message.topic, message.queue_id, message.priority) == (topic, queue, None)
    assert fields_of(answer)["queueId"] == "1"


def test_a_message_for_now_has_no_handle(send: Send, store: MessageStore):
    answer = send(command(properties={"TIMER_DELIVER_MS": "5000"}))
    assert stored(store, answer)[0].topic == "T"
    assert "recallHandle" not in fields_of(answer)


def test_a_time_too_far_ahead_is_rejected(send: Send, store: MessageStore):
    code, remark = refused(send, command(properties={"TIMER_DELAY_SEC": "259201"}))
    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert "max delay 259200000ms" in remark
    assert store.appender.put_count == 0


@pytest.mark.parametrize(
    "topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster", "rmq_sys_REVIVE_LOG_x"]
)
def test_what_a_forged_record_would_move_is_not_sent_to(send: Send, store: MessageStore, topic: str):
    forged = {"TAGS": "ck", "TIMER_OUT_MS": "1", "REAL_TOPIC": "Other", "REAL_QID": "0"}
    remark = f"Sending message to topic[{topic}] is forbidden."
    assert refused(send, command(topic=topic, properties=forged)) == (ResponseCode.NO_PERMISSION, remark)
    assert store.appender.put_count == 0


def test_a_timer_message_cannot_name_another_topic(send: Send, store: MessageStore):
    forged = {"TAGS": "ck", "TIMER_DELAY_SEC": "9", "REAL_TOPIC": "rmq_sys_REVIVE_LOG_DefaultCluster", "REAL_QID": "3"}
    (message,) = stored(store, send(command(properties=forged)))
    assert message.topic == "rmq_sys_wheel_timer"
    assert (message.properties["REAL_TOPIC"], message.properties["REAL_QID"]) == ("T", "0")


HALF = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "1" * 32, "TAGS": "A"}


@pytest.mark.proves("Transactions", "half messages wait unseen")
def test_a_half_message_waits_in_the_half_topic(parts: SimpleNamespace, send: Send, store: MessageStore):
    half = command(queue_id=3, properties=HALF)
    half.header.sys_flag = 4
    for number in range(2):
        answer = send(half)
        assert fields_of(answer)["queueOffset"] == str(number)
        assert (fields_of(answer)["queueId"], fields_of(answer)["transactionId"]) == ("3", "1" * 32)
        (message,) = stored(store, answer)
        assert (message.topic, message.queue_id, message.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
        own = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
        real = {"__transactionId__": "1" * 32, "REAL_TOPIC": "T", "REAL_QID": "3"}
        assert message.properties == HALF | own | real
    assert store.queues.max_offset_in_queue("T", 3) == 0
    assert (parts.stats.topic_put("T").nums, parts.stats.topic_put("RMQ_SYS_TRANS_HALF_TOPIC").nums) == (0, 2)


def test_half_messages_are_rejected_where_that_is_set(parts: SimpleNamespace, send: Send, store: MessageStore):
    apply_updates((parts.config,), {"rejectTransactionMessage": "true"})
    code, remark = refused(send, command(properties=HALF))
    assert (code, remark.endswith("its rejectTransactionMessage is true")) == (ResponseCode.NO_PERMISSION, True)
    assert store.appender.put_count == 0


def test_a_half_message_that_nobody_could_end_is_rejected(send: Send, store: MessageStore):
    for properties, why in (({"TRAN_MSG": "true"}, "PGROUP"), (HALF | {"DELAY": "1"}, "cannot be delayed")):
        code, remark = refused(send, command(properties=properties))
        assert (code, why in remark) == (ResponseCode.MESSAGE_ILLEGAL, True)
    assert store.appender.put_count == 0


def test_a_transaction_by_its_flag_alone_is_rejected(send: Send, store: MessageStore):
    for sys_flag in (4, 8, 12):
        half = command(properties={"TRAN_MSG": "no"})
        half.header.sys_flag = sys_flag
        for properties in ("", "k\x01v\x02"):
            half.header.properties = properties
            code, remark = refused(send, half)
            assert (code, f"sysFlag {sys_flag}" in remark) == (ResponseCode.MESSAGE_ILLEGAL, True)
    assert store.appender.put_count == 0


def test_a_retry_of_a_transaction_message_is_no_transaction(send: Send, store: MessageStore):
    """As clients before 4.6.1 send it."""
    retry = command(topic="%RETRY%g", properties=HALF | {"DELAY": "3"}, reconsume_times=1)
    retry.header.sys_flag = 4
    (message,) = stored(store, send(retry))
    assert (message.topic, message.sys_flag, message.properties["REAL_TOPIC"]) == ("SCHEDULE_TOPIC_XXXX", 0, "%RETRY%g")


@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "a batch that is delayed, a retry or broken is rejected",
)
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"sys_flag": 4}, "cannot be part of a transaction"),
        ({"sys_flag": 8}, "cannot be part of a transaction"),
        ({"properties": {"DELAY": "3"}}, "cannot be delayed"),
        ({"properties": {"TIMER_DELAY_MS": "3"}}, "cannot be delayed"),
        ({"properties": {"TIMER_DELAY_SEC": "3"}}, "cannot be delayed"),
        ({"properties": {"TIMER_DELIVER_MS": "3"}}, "cannot be delayed"),
    ],
)
def test_options_that_a_batch_cannot_have_are_rejected(
    send: Send, store: MessageStore, fields: dict[str, Any], why: str
):
    body = encode_batch([(0, b"one", b""), (0, b"two", b"")])
    assert fields_of(send(batch_command(body)))["queueOffset"] == "0"

    code, remark = refused(send, batch_command(body, **fields))

    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert why in remark
    assert store.queues.max_offset_in_queue("T", 0) == 2


def test_a_batch_over_the_limit_is_rejected_whatever_its_bodies(send: Send, store: MessageStore):
    body = encode_batch([(0, b"", b"")] * (store.config.max_message_size // 22 + 1))

    code, remark = refused(send, batch_command(body))

    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert f"the batch has {len(body):,} bytes, above the limit of {store.config.max_message_size:,};" in remark
    assert store.commit_log.max_offset == 0


def test_a_batch_of_too_many_messages_is_rejected_before_it_is_split(send: Send, store: MessageStore, monkeypatch):
    apply_updates([store.config], {"maxMessagesPerBatch": "12000"})
    at_limit = encode_batch([(0, b"", b"")] * 12_000)
    split = Mock(wraps=split_batch)
    monkeypatch.setattr(batch_send, "split_batch", split)

    code, remark = refused(send, batch_command(at_limit + encode_batch([(0, b"", b"")])))

    assert (code, split.call_count, store.commit_log.max_offset) == (ResponseCode.MESSAGE_ILLEGAL, 0, 0)
    assert remark.startswith("maxMessagesPerBatch: the batch has more messages than the limit of 12,000; split it or")
    _, remark = refused(send, batch_command(at_limit))
    assert split.call_count == 1
    assert "mappedFileSizeCommitLog" in remark, "it has few enough messages, but this log has small files"


def test_a_batch_of_too_many_keys_is_rejected_whatever_its_messages(send: Send, store: MessageStore):
    apply_updates([store.config], {"maxMessagesPerBatch": "12000"})
    keys = b"KEYS\x01" + b" ".join(b"%d" % number for number in range(61)) + b"\x02"
    blanks = b"NOTE\x01" + b" " * 60 + b"\x02"

    code, remark = refused(send, batch_command(encode_batch([(0, b"", keys)] * 801)))

    assert (code, store.commit_log.max_offset) == (ResponseCode.MESSAGE_ILLEGAL, 0)
    assert remark.startswith(
        "maxMessagesPerBatch: the batch has over 48,060 keys, above 4 for each of 12,000 messages;"
    )
    for allowed in (encode_batch([(0, b"", keys)] * 800), encode_batch([(0, b"", blanks)] * 801)):
        send(batch_command(allowed))
    assert store.queues.max_offset_in_queue("T", 0) == 1601


@pytest.mark.proves(
    "Retries and dead letters",
    "orderly consumers with `maxReconsumeTimes`: then a dead letter, and the next message",
)
def test_a_retry_that_was_tried_too_often_is_a_dead_letter(send: Send, store: MessageStore):
    (again,) = stored(store, send(command(topic="%RETRY%G", reconsume_times=16)))
    (dead,) = stored(store, send(command(topic="%RETRY%G", reconsume_times=17)))
    assert (again.topic, dead.topic) == ("%RETRY%G", "%DLQ%G")


def test_a_dead_letter_with_a_priority_is_in_the_only_queue(parts: SimpleNamespace, send: Send, store: MessageStore):
    parts.topic_configs.update(TopicConfig("%RETRY%G", 4, 4))
    again = command(topic="%RETRY%G", reconsume_times=17, properties={"_SYS_MSG_PRIORITY_": "3"})
    (dead,) = stored(store, send(again))
    assert (dead.topic, dead.queue_id) == ("%DLQ%G", 0)


def test_a_batch_that_cannot_be_split_is_rejected(send: Send, store: MessageStore):
    assert refused(send, command(b"\0\0\0\x10", batch=True))[0] == ResponseCode.MESSAGE_ILLEGAL
    assert store.appender.put_count == 0


def batch_topic(parts: SimpleNamespace) -> None:
    parts.topic_configs.update(TopicConfig("T", 4, 4, attributes={"+queue.type": "BatchCQ"}))


def test_a_batch_for_a_topic_of_batches_is_one_record(parts: SimpleNamespace, send: Send, store: MessageStore):
    batch_topic(parts)
    body = encode_batch([(0, b"one", b"TAGS\x01A\x02"), (0, b"two", b"")])
    send(command())
    answer = send(batch_command(body, properties={"UNIQ_KEY": "U1", "WAIT": "true"}))

    fields = fields_of(answer)
    assert (fields["batchUniqId"], fields["transactionId"], fields["queueOffset"]) == ("U1", "U1", "1")
    (record,) = stored(store, answer)
    assert (record.body, record.queue_offset, record.sys_flag & 0xC0) == (body, 1, 0xC0)
    assert record.properties == {
        "UNIQ_KEY": "U1",
        "WAIT": "true",
        "INNER_NUM": "2",
        "INNER_BASE": "1",
        "MSG_REGION": parts.config.region_id,
        "TRACE_ON": "true",
        "CLUSTER": parts.config.broker_cluster_name,
    }
    assert store.queues.max_offset_in_queue("T", 0) == 3
    assert fields_of(send(command()))["queueOffset"] == "3"
    assert parts.stats.topic_put("T").nums == 4


@pytest.mark.parametrize("is_batch", [False, True])
def test_the_handle_of_an_earlier_delivery_goes(
    parts: SimpleNamespace, send: Send, store: MessageStore, is_batch: bool
):
    popped = {"UNIQ_KEY": "U1", "POP_CK": "0 1700000000000 60000 3 0 broker-a 0 7", "A": "a"}
    if is_batch:
        batch_topic(parts)
        (record,) = stored(store, send(batch_command(encode_batch([(0, b"one", b"")]), properties=popped)))
    else:
        (record,) = stored(store, send(command(properties=popped)))

    assert "POP_CK" not in record.properties
    assert {"A": "a", "UNIQ_KEY": "U1", "MSG_REGION": parts.config.region_id}.items() <= record.properties.items()


def test_the_messages_of_a_batch_keep_their_properties(send: Send, store: MessageStore):
    """Also the handle of an earlier delivery, as in RocketMQ: the broker does not look into them."""
    properties = b"POP_CK\x010 1700000000000 60000 3 0 broker-a 0 7\x02"
    (record,) = stored(store, send(batch_command(encode_batch([(0, b"one", properties)]))))
    assert record.properties["POP_CK"] == "0 1700000000000 60000 3 0 broker-a 0 7"


async def test_a_batch_with_wait_false_waits_for_no_slave(parts: SimpleNamespace, store: MessageStore):
    ends: list[OnAcknowledged] = []
    store.acknowledgements = Acknowledgements(None, lambda _, tell: ends.append(tell))
    processor = processor_of(parts, store)
    body = encode_batch([(0, b"one", b""), (0, b"two", b"")])
    processor.send_message(FakeConnection(), command())  # creates the topic
    ends.clear()

    answers = [
        processor.send_message(FakeConnection(), batch_command(body, properties={"WAIT": wait}))
        for wait in ("true", "false")
    ]

    assert [isinstance(each, bytes) or asyncio.ensure_future(each).done() for each in answers] == [False, True]
    assert len(ends) == 1


def test_a_batch_without_an_id_is_stored_one_by_one(parts: SimpleNamespace, send: Send, store: MessageStore):
    batch_topic(parts)
    answer = send(batch_command(encode_batch([(0, b"one", b""), (0, b"two", b"")])))
    assert "batchUniqId" not in fields_of(answer)
    assert [each.queue_offset for each in stored(store, answer)] == [0, 1]
    assert [each.body for each in read_queue(store, "T", 0)] == [b"one", b"two"]


def test_more_messages_than_an_entry_counts_are_rejected(parts: SimpleNamespace, send: Send, store: MessageStore):
    batch_topic(parts)
    code, remark = refused(send, batch_command(encode_batch([(0, b"", b"")] * 32_768), properties={"UNIQ_KEY": "U"}))
    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert "the batch has 32768 messages; topic[T] has queue.type=BatchCQ, which allows 32767 per batch" in remark
    assert store.appender.put_count == 0


@pytest.mark.parametrize("of_batches", [False, True])
@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"properties": {"INNER_NUM": "2"}}, "only the broker sets the property INNER_NUM"),
        ({"sys_flag": 0x80}, "marks a batch in one record (128)"),
        ({"sys_flag": 0xC0, "properties": {"INNER_NUM": "2"}}, "INNER_NUM"),
    ],
)
def test_a_message_marked_as_inner_batch_is_rejected(
    parts: SimpleNamespace, send: Send, store: MessageStore, of_batches: bool, wanted: dict[str, Any], why: str
):
    if of_batches:
        batch_topic(parts)
    sent = command(properties=wanted.get("properties", {}))
    sent.header.sys_flag = wanted.get("sys_flag", 0)
    code, remark = refused(send, sent)
    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert why in remark
    assert store.appender.put_count == 0


@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "topics with `cleanup.policy=COMPACTION`: not served",
)
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(("name", "value"), [("cleanup.policy", "COMPACTION")])
def test_a_topic_whose_attributes_are_not_honoured_is_not_written(
    parts: SimpleNamespace, send: Send, store: MessageStore, name: str, value: str, batch: bool
):
    parts.topic_configs.topics["T"] = TopicConfig("T", attributes={name: value})  # as a store taken over has it
    code, remark = refused(send, command(batch=batch))
    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert f"topic[T] has {name}={value}, which this broker does not support" in remark
    assert store.appender.put_count == 0


def test_a_changed_region_is_in_the_next_message_and_answer(parts: SimpleNamespace, send: Send, store: MessageStore):
    send(command())
    apply_updates([parts.config], {"regionId": "there"})
    answer = send(command())
    assert fields_of(answer)["MSG_REGION"] == stored(store, answer)[0].properties["MSG_REGION"] == "there"


@pytest.mark.proves("The steps of a message", "4. answer")
async def test_a_send_is_answered_when_it_is_on_disk(parts: SimpleNamespace, sync_store: MessageStore):

    answer = processor_of(parts, sync_store).send_message(FakeConnection(), command())

    assert inspect.isawaitable(answer)
    assert fields_of(await answer)["queueOffset"] == "0"
    assert sync_store.flusher.flushed_offset == sync_store.commit_log.max_offset > 0


def test_a_send_that_waits_for_its_topic_alone_begins_its_own_put(
    parts: SimpleNamespace, store: MessageStore, monkeypatch: pytest.MonkeyPatch
):
    processor = processor_of(parts, store)
    begun: list[float] = []
    monkeypatch.setattr(processor._fast_failure, "begin_put", lambda: begun.append(store.commit_log.max_offset))

    processor.send_message(FakeConnection(), command())

    assert begun == [0], "before the message is stored"


@pytest.mark.proves("When a sync fails", "waiting and later sends")
@pytest.mark.parametrize("sent", [command, lambda: batch_command(encode_batch([(0, b"one", b""), (0, b"two", b"")]))])
async def test_one_that_is_not_on_disk_in_time_is_answered_with_its_place(
    parts: SimpleNamespace, sync_store: MessageStore, monkeypatch, sent: Callable[[], Command]
):
    """Clients take the fields of this answer as those of success: without them it would be no answer to them."""
    apply_updates([sync_store.config], {"syncFlushTimeout": "30"})
    go = threading.Event()
    processor = processor_of(parts, sync_store)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", lambda _: go.wait(60))
        answer = processor.send_message(FakeConnection(), sent())
        assert inspect.isawaitable(answer)
        late = await answer
        go.set()

    assert isinstance(late, RemotingCommand)
    assert (late.code, late.remark) == (10, "the message was not on disk within 30 ms (syncFlushTimeout)")
    assert late.header["queueId"] == "0"
    assert late.header["queueOffset"] == "0"
    assert late.header["msgId"].startswith(sync_store.commit_log.store_host.hex().upper())


async def test_more_than_may_wait_for_the_disk_are_rejected_and_not_stored(
    parts: SimpleNamespace, sync_store: MessageStore, monkeypatch
):
    apply_updates([parts.config], {"sendThreadPoolQueueCapacity": "2"})
    processor = processor_of(parts, sync_store)
    go = threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", lambda _: go.wait(60))
        waiting = [processor.send_message(FakeConnection(), command()) for _ in range(2)]
        code, remark = refused(lambda one: processor.send_message(FakeConnection(), one), command())
        go.set()
        for answer in waiting:
            assert inspect.isawaitable(answer)
            fields_of(await answer)

    assert code == ResponseCode.SYSTEM_BUSY
    assert "the limit is 2 (sendThreadPoolQueueCapacity)" in remark
    assert sync_store.appender.put_count == 2
    again = processor.send_message(FakeConnection(), command())
    assert inspect.isawaitable(again)
    assert fields_of(await again)["queueOffset"] == "2"


def test_a_send_that_waited_for_its_turn_is_rejected_under_any_flush(parts: SimpleNamespace, store: MessageStore):
    connection = FakeConnection()
    connection.waited_s = 0.5

    code, remark = refused(lambda one: processor_of(parts, store).send_message(connection, one), command())

    assert code == ResponseCode.SYSTEM_BUSY
    assert "period in queue: 500ms" in remark
    assert store.appender.put_count == 0


def test_a_run_is_handled_together_unless_it_waited_too_long(parts: SimpleNamespace, store: MessageStore):
    connection, runs = FakeConnection(), processor_of(parts, store).runs

    connection.waited_s = 0.1999
    assert runs.target(connection, header()) is not None
    connection.waited_s = 0.2
    assert runs.target(connection, header()) is None
    apply_updates([parts.config], {"brokerFastFailureEnable": "false"})
    assert runs.target(connection, header()) is not None


def with_keys(count: int) -> dict[str, str]:
    return {"UNIQ_KEY": "7F000001", "KEYS": " ".join(f"{number:x}" for number in range(count))}


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"DELAY": "3"},
        {"TRAN_MSG": "true", "PGROUP": "PG"},
    ],
    ids=["plain", "delayed", "half"],
)
def test_a_message_with_too_many_keys_is_rejected(send: Send, store: MessageStore, properties: dict[str, str]):
    code, remark = refused(send, command(properties=properties | with_keys(6000)))

    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert remark.startswith("maxKeysPerMessage: 6,000 keys exceed the limit of 128;")
    assert store.commit_log.max_offset == 0
    send(command(properties=properties | with_keys(128)))
    assert store.commit_log.max_offset > 0


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRACE_TOPIC", "Traces"])
def test_a_message_of_traces_has_the_keys_of_many_messages(parts: SimpleNamespace, store: MessageStore, topic: str):
    parts.config = parts.config.model_copy(update={"msg_trace_topic_name": "Traces"})
    parts.topic_configs.update(TopicConfig(topic, 1, 1))
    processor = processor_of(parts, store)

    processor.send_message(FakeConnection(), command(topic=topic, properties=with_keys(1000)))

    assert store.commit_log.max_offset > 0
    with pytest.raises(BrokerResponseError, match="2,049 keys exceed the limit of 2,048;"):
        processor.send_message(FakeConnection(), command(topic=topic, properties=with_keys(2049)))


@pytest.mark.parametrize("of_all", [True, False])
def test_a_batch_with_too_many_keys_is_rejected_whole(send: Send, store: MessageStore, of_all: bool):
    keys = with_keys(129)
    body = encode_batch([(0, b"one", b""), (0, b"two", b"" if of_all else encode_properties(keys))])

    code, remark = refused(send, batch_command(body, properties=keys if of_all else {}))

    assert (code, remark[:28]) == (ResponseCode.MESSAGE_ILLEGAL, "maxKeysPerMessage: 129 keys ")
    assert store.commit_log.max_offset == 0
