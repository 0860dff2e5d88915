import errno
import inspect
import os
import threading

import pytest

from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.timer.timer_rewrite import HandleScheduleMessage
from rocketbroker.codec.message.message_const import host_flags
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.codec.remoting.headers.message import (
    FLAG_SUBSCRIPTION,
    ConsumerSendMsgBackRequestHeader,
    PullMessageRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.consumer_send_msg_back import ConsumerSendMsgBackProcessor
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from tests.support.fakes import FakeConnection
from tests.support.processors import pull_processor
from tests.support.stores import inner_batch, put_forged, read_queue

STORE_HOST = host_bytes("127.0.0.1", 10911)
PRODUCER = host_bytes("10.1.2.3", 40000)
PROPERTIES = {"KEYS": "k", "TAGS": "TagA", "UNIQ_KEY": "7F0000010000000000000000000000AB", "WAIT": "true"}


def make(parts, store, appender=None):
    return ConsumerSendMsgBackProcessor(
        parts.config,
        parts.subscription_groups,
        parts.topic_configs,
        appender or store.appender,
        store.queries,
        store.acknowledgements,
        store_host=STORE_HOST,
        schedule=HandleScheduleMessage(MessageStoreConfig(), parts.clock, 18, lambda: 1000),
        stats=parts.stats,
        fast_failure=BrokerFastFailure(parts.config),
        allowance=parts.send_backs,
    )


@pytest.fixture
def processor(parts, store):
    return make(parts, store)


def put(store, topic="T", reconsume_times=0, born_host=PRODUCER, properties=None):
    message = MessageExtBrokerInner(
        topic,
        2,
        b"body",
        encode_properties(PROPERTIES if properties is None else properties),
        7,
        host_flags(born_host, STORE_HOST),
        1_795_254_000_000,
        born_host,
        reconsume_times,
    )
    result = store.appender.put_copy(message)
    store.appender.dispatch()
    return result.physical_offset


async def put_on_disk(store):
    """Store a message under SYNC_FLUSH, which a queue leads to once it is on disk."""
    offset = put(store)
    assert await store.flusher.sync()
    store.appender.dispatch()
    return offset


def send_back(processor, offset, group="g", delay_level=0, version=513, connection=None, **fields):
    header = ConsumerSendMsgBackRequestHeader(offset, group, delay_level, **fields)
    command = request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    command.version = version
    answer = processor.consumer_send_msg_back(connection or FakeConnection(), command)
    processor._appender.dispatch()
    return answer


def stored(store, topic, queue_id, offset=0):
    return read_queue(store, topic, queue_id, offset)[0]


def test_a_message_of_a_batch_in_one_record_cannot_be_sent_back_by_itself(processor, parts, store):
    parts.topic_configs.update(TopicConfig("Batches", 4, 4, attributes={"+queue.type": "BatchCQ"}))
    offset = store.appender.put_inner_batch(inner_batch(b"one", b"two"), 2).physical_offset
    store.appender.dispatch()
    before = store.commit_log.max_offset
    with pytest.raises(BrokerResponseError) as error:
        send_back(processor, offset)
    assert error.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert "is part of a batch in one record, of topic Batches with queue.type=BatchCQ" in error.value.remark
    assert store.commit_log.max_offset == before


def test_a_record_that_somebody_wrote_into_a_body_cannot_be_sent_back(processor, store):
    forged = put_forged(store, store.commit_log.record(put(store)))
    before = store.commit_log.max_offset

    with pytest.raises(BrokerResponseError, match=f"look message by offset failed, {forged}"):
        send_back(processor, forged)
    assert store.commit_log.max_offset == before


def test_one_message_is_not_sent_back_again_and_again(processor, parts, store):
    apply_updates([parts.config], {"consumerSendMsgBackBytesPerSecond": "1000"})
    offset = put(store, properties={**PROPERTIES, "PAD": "x" * 10_000})
    before = store.commit_log.max_offset
    refusals = []
    for _ in range(100):
        try:
            send_back(processor, offset)
        except BrokerResponseError as refusal:
            refusals.append(refusal)

    assert len(refusals) == 99
    assert {refusal.code for refusal in refusals} == {ResponseCode.SYSTEM_BUSY}
    assert refusals[0].remark.startswith("consumerSendMsgBackBytesPerSecond: 10,")
    assert "exceed what this connection has pulled and the rate of 1,000" in refusals[0].remark
    assert store.commit_log.max_offset - before < 11_000


def test_a_consumer_that_fails_at_all_messages_sends_all_of_them_back(processor, parts, store):
    apply_updates([parts.config], {"consumerSendMsgBackBytesPerSecond": "1"})
    parts.topic_configs.update(TopicConfig("T", 4, 4))
    offsets = [put(store, properties={**PROPERTIES, "PAD": "x" * 10_000}) for _ in range(20)]
    consumer = FakeConnection()
    header = PullMessageRequestHeader("g", "T", 2, 0, 32, FLAG_SUBSCRIPTION, 0, 0, 0, "*")
    pull = pull_processor(parts, store, PullRequestHoldService(parts.config))
    pull.pull_message(consumer, request(RequestCode.PULL_MESSAGE, header))

    answers = [send_back(processor, offset, connection=consumer) for offset in offsets]

    assert {answer.code for answer in answers} == {0}
    assert send_back(processor, offsets[0], connection=consumer).code == 0, "what the rate has kept"
    with pytest.raises(BrokerResponseError):
        send_back(processor, offsets[0], connection=consumer)


def test_retry_copy_goes_through_the_schedule_topic(processor, parts, store):
    offset = put(store)
    original = decode_record(store.commit_log.record(offset))
    answer = send_back(processor, offset)
    assert (answer.code, answer.header) == (0, None)
    copy = stored(store, "SCHEDULE_TOPIC_XXXX", 2)
    assert copy.properties == {
        **PROPERTIES,
        "RETRY_TOPIC": "T",
        "WAIT": "false",
        "DELAY": "3",
        "ORIGIN_MESSAGE_ID": original.offset_msg_id,
        "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "0",
    }
    assert (copy.reconsume_times, copy.body, copy.flag, copy.body_crc) == (1, b"body", 7, original.body_crc)
    assert (copy.born_timestamp, copy.born_host) == (original.born_timestamp, PRODUCER)
    assert parts.topic_configs.select("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6)
    assert parts.stats.view("SNDBCK_PUT_NUMS", "T@g").stats_minute.sum == 1


@pytest.mark.parametrize(
    ("reconsume_times", "delay_level", "queue_id"),
    [(0, 0, 2), (4, 0, 6), (15, 0, 17), (0, 1, 0), (3, 5, 4), (0, 99, 17)],
)
def test_delay_level(processor, store, reconsume_times, delay_level, queue_id):
    offset = put(store, reconsume_times=reconsume_times)
    send_back(processor, offset, delay_level=delay_level)
    copy = stored(store, "SCHEDULE_TOPIC_XXXX", queue_id)
    assert copy.get_property("DELAY") == str(queue_id + 1)
    assert copy.reconsume_times == reconsume_times + 1


@pytest.mark.proves("Retries and dead letters", "`ORIGIN_MESSAGE_ID` and the first topic are kept")
def test_first_topic_and_first_id_stay_over_retries(processor, store):
    properties = PROPERTIES | {"RETRY_TOPIC": "First", "ORIGIN_MESSAGE_ID": "0" * 32, "DELAY": "3", "REAL_TOPIC": "x"}
    offset = put(store, "%RETRY%g", 1, properties=properties)
    send_back(processor, offset)
    copy = stored(store, "SCHEDULE_TOPIC_XXXX", 3)
    assert copy.get_property("RETRY_TOPIC") == "First"
    assert copy.get_property("ORIGIN_MESSAGE_ID") == "0" * 32
    assert copy.get_property("REAL_TOPIC") == "%RETRY%g"
    assert copy.properties_bytes.count(b"DELAY\x01") == 1


@pytest.mark.proves(
    "Retries and dead letters",
    "`maxReconsumeTimes` of the consumer; that of the group (`retryMaxTimes`) for clients that say nothing",
)
@pytest.mark.parametrize(
    ("reconsume_times", "delay_level", "fields", "version"),
    [
        (16, 0, {}, 513),
        (0, -1, {}, 513),
        (1, 1, {"max_reconsume_times": 1}, 513),
        (0, 3, {"max_reconsume_times": 0}, 513),
        (16, 0, {"max_reconsume_times": 99}, 63),
    ],
)
def test_dead_letters(processor, parts, store, reconsume_times, delay_level, fields, version):
    offset = put(store, reconsume_times=reconsume_times)
    send_back(processor, offset, delay_level=delay_level, version=version, **fields)
    copy = stored(store, "%DLQ%g", 0)
    assert (copy.get_property("DELAY"), copy.get_property("KEYS"), copy.tags) == ("0", "k", "TagA")
    assert copy.reconsume_times == reconsume_times + 1
    assert parts.topic_configs.select("%DLQ%g") == TopicConfig("%DLQ%g", 1, 1, 6)
    assert parts.stats.view("DLQ_PUT_NUMS", "T@g").stats_minute.sum == 1
    assert store.queues.queues_of("SCHEDULE_TOPIC_XXXX") == {}


def test_ipv6_producer(processor, store):
    born_host = host_bytes("2001:db8::1", 40000)
    send_back(processor, put(store, born_host=born_host))
    assert stored(store, "SCHEDULE_TOPIC_XXXX", 2).born_host == born_host


@pytest.mark.proves(
    "Retries and dead letters",
    "no such offset, no such group, a topic or broker that may not be written to: rejected",
)
@pytest.mark.parametrize("offset", [-1, 1, 17, 10**6, 2**63 - 1])
def test_offset_without_a_message(processor, store, offset):
    put(store)
    with pytest.raises(BrokerResponseError, match=f"look message by offset failed, {offset}") as error:
        send_back(processor, offset)
    assert error.value.code == ResponseCode.SYSTEM_ERROR
    assert store.queues.queues_of("SCHEDULE_TOPIC_XXXX") == {}


@pytest.mark.proves(
    "Retries and dead letters",
    "no such offset, no such group, a topic or broker that may not be written to: rejected",
)
@pytest.mark.parametrize("group", ["", "../../g", "a@b", "a" * 121])
def test_illegal_group(processor, parts, store, group):
    with pytest.raises(BrokerResponseError, match="subscription group not exist") as error:
        send_back(processor, put(store), group=group)
    assert error.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert not any(topic.startswith("%") for topic in parts.topic_configs.topics)


@pytest.mark.proves(
    "Retries and dead letters",
    "no such offset, no such group, a topic or broker that may not be written to: rejected",
)
def test_permissions(processor, parts, store):
    offset = put(store)
    parts.topic_configs.update(TopicConfig("%RETRY%g", 1, 1, 4))
    with pytest.raises(BrokerResponseError, match=r"the topic\[%RETRY%g\] sending message is forbidden") as error:
        send_back(processor, offset)
    assert error.value.code == ResponseCode.NO_PERMISSION
    parts.config = parts.config.model_copy(update={"broker_permission": 4})
    with pytest.raises(BrokerResponseError, match=r"the broker\[127.0.0.1\] sending message is forbidden"):
        send_back(make(parts, store), offset)


def test_group_without_retries(processor, parts, store):
    parts.subscription_groups.find("g").retry_queue_nums = 0
    assert send_back(processor, put(store)).code == 0
    assert store.queues.queues_of("SCHEDULE_TOPIC_XXXX") == {}


def test_copy_that_cannot_be_stored(processor, parts, store):
    class Full:
        def put_copy(self, _message):
            return PutMessageResult(PutMessageStatus.DISK_FULL, reason="no room")

    with pytest.raises(BrokerResponseError, match=r"\[DISK_FULL\] no room") as error:
        send_back(make(parts, store, Full()), put(store))
    assert error.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_properties_of_another_broker_that_would_grow_too_long(processor, store):
    offset = put(store, properties={"big": "x" * 32_700})
    with pytest.raises(BrokerResponseError, match="PROPERTIES_SIZE_EXCEEDED"):
        send_back(processor, offset)


@pytest.mark.proves("The steps of a message", "4. answer")
@pytest.mark.proves("Retries and dead letters", "under SYNC_FLUSH a message is sent back when its copy is on disk")
async def test_the_answer_waits_until_the_copy_is_on_disk(parts, sync_store):
    answer = send_back(make(parts, sync_store), await put_on_disk(sync_store))

    assert inspect.isawaitable(answer)
    assert ((await answer).code, sync_store.flusher.flushed_offset) == (0, sync_store.commit_log.max_offset)
    assert stored(sync_store, "SCHEDULE_TOPIC_XXXX", 2).get_property("REAL_TOPIC") == "%RETRY%g"


async def test_a_copy_that_is_not_on_disk_in_time_is_not_acknowledged(parts, sync_store, monkeypatch):
    apply_updates([sync_store.config], {"syncFlushTimeout": "30"})
    offset = await put_on_disk(sync_store)
    go = threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", lambda _: go.wait(60))
        late = await send_back(make(parts, sync_store), offset)
        go.set()

    assert (late.code, late.remark) == (10, "the message was not on disk within 30 ms (syncFlushTimeout)")


@pytest.mark.proves("When a sync fails", "waiting and later sends")
async def test_a_copy_whose_sync_failed_is_not_acknowledged(parts, sync_store, monkeypatch):
    offset = await put_on_disk(sync_store)

    def broken(_fd):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", broken)
        refused = await send_back(make(parts, sync_store), offset)

    assert refused.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert "Input/output error" in refused.remark


async def test_those_that_wait_for_the_disk_are_bounded(parts, sync_store, monkeypatch):
    apply_updates([parts.config], {"sendThreadPoolQueueCapacity": "1"})
    processor = make(parts, sync_store)
    offset = await put_on_disk(sync_store)
    go = threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", lambda _: go.wait(60))
        waiting = send_back(processor, offset)
        with pytest.raises(BrokerResponseError, match=r"the limit is 1 \(sendThreadPoolQueueCapacity\)") as error:
            send_back(processor, offset)
        go.set()
        assert (await waiting).code == 0

    assert error.value.code == ResponseCode.SYSTEM_BUSY
    assert sync_store.appender.put_count == 2
    assert (await send_back(processor, offset)).code == 0, "there is room again"


def test_one_that_waited_for_its_turn_is_rejected_under_any_flush(parts, store):
    connection = FakeConnection()
    connection.waited_s = 0.5
    command = request(RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(put(store), "g", 0))

    with pytest.raises(BrokerResponseError, match="period in queue: 500ms"):
        make(parts, store).consumer_send_msg_back(connection, command)


def test_a_client_sends_nothing_back_for_a_group_of_the_broker(processor, parts, store):
    stranger = FakeConnection("10.0.0.9:1", Audience.CLIENT)
    with pytest.raises(
        BrokerResponseError, match="the consumer group CID_RMQ_SYS_TRANS belongs to the broker"
    ) as error:
        send_back(processor, put(store), group="CID_RMQ_SYS_TRANS", connection=stranger)
    assert error.value.code == ResponseCode.NO_PERMISSION
    assert parts.topic_configs.select("%RETRY%CID_RMQ_SYS_TRANS") is None
