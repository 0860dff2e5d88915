import errno
import logging

import msgspec
import pytest

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.topic_config import (
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicFilterType,
)
from rocketbroker.codec.remoting.headers.admin import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetTopicConfigRequestHeader,
)
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.processor.admin.topics import MAX_QUEUE_NUMS, TopicRequests, parse_attributes
from tests.support.heard_topics import HeardTopics
from tests.support.processor_calls import call, call_async, family, recorded, refusal, refusal_async
from tests.support.stores import message


def header(topic="T", **fields):
    defaults = CreateTopicRequestHeader(topic, "TBW102", 4, 4, 6, "SINGLE_TAG", 0, False, "")
    return msgspec.structs.replace(defaults, **fields)


@pytest.fixture
def told(parts):
    heard = HeardTopics()
    parts.topic_configs.on_change(heard)
    return heard


@pytest.fixture
def processor(parts):
    return family(TopicRequests, parts)


def test_recorded_requests_make_what_they_name(parts, processor, told):
    seen = 0
    for command, theirs in recorded(17, CreateTopicRequestHeader):
        ours = call(processor.update_and_create_topic, command.header)
        assert (ours.code, ours.fields, ours.body) == (theirs.code, theirs.fields, theirs.body)
        made = parts.topic_configs.select(command.header.topic)
        wanted = command.header
        assert (made.read_queue_nums, made.write_queue_nums) == (wanted.read_queue_nums, wanted.write_queue_nums)
        assert (made.perm, made.order, made.topic_sys_flag) == (wanted.perm, wanted.order, wanted.topic_sys_flag)
        seen += 1
    assert seen == 10
    assert parts.topic_configs.select("AdmFifo").attributes == {"message.type": "FIFO"}
    assert {topic.topic_name for topic in told} >= {"AdmTopic", "AdmFifo", "AdmOrder", "CreatedByProducer"}


def test_recorded_list(parts, processor, told):
    (command, theirs), *more = recorded(18)
    assert not more
    ours = call(processor.update_and_create_topic_list, body=command.body)
    assert (ours.code, ours.fields, ours.body) == (theirs.code, theirs.fields, theirs.body)
    wanted = CreateTopicListRequestBody.decode(command.body).topic_config_list
    assert [parts.topic_configs.select(topic.topic_name) for topic in wanted] == wanted == told


def test_unchanged_topic_is_not_registered_again(parts, processor, told):
    call(processor.update_and_create_topic, header())
    version = parts.topic_configs.data_version.copy()
    assert call(processor.update_and_create_topic, header()).code == 0
    assert len(told) == 1
    assert parts.topic_configs.data_version == version
    call(processor.update_and_create_topic, header(perm=4))
    assert len(told) == 2


def test_attributes_change_one_by_one(parts, processor):
    call(processor.update_and_create_topic, header(attributes="+message.type=FIFO"))
    call(processor.update_and_create_topic, header(attributes="+message.type=DELAY"))
    assert parts.topic_configs.select("T").attributes == {"message.type": "DELAY"}
    call(processor.update_and_create_topic, header(attributes="-message.type"))
    assert parts.topic_configs.select("T").attributes == {}


@pytest.mark.parametrize("name", ["UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY"])
def test_a_topic_names_its_type_of_messages(parts, processor, name):
    assert call(processor.update_and_create_topic, header(attributes=f"+message.type={name}")).code == 0
    assert parts.topic_configs.select("T").attributes == {"message.type": name}


@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        (header("../up"), ResponseCode.INVALID_PARAMETER, "The specified topic: ../up"),
        (header(""), ResponseCode.INVALID_PARAMETER, "blank"),
        (header("t" * 128), ResponseCode.INVALID_PARAMETER, "longer than topic max length"),
        (header("TBW102"), ResponseCode.INVALID_PARAMETER, "The topic[TBW102] is conflict with system topic."),
        (header("broker-a"), ResponseCode.INVALID_PARAMETER, "The topic[broker-a] is conflict"),
        (header("rmq_sys_x"), ResponseCode.INVALID_PARAMETER, "is conflict with system topic."),
        (header(read_queue_nums=-1), ResponseCode.INVALID_PARAMETER, "readQueueNums -1 of topic T"),
        (header(write_queue_nums=MAX_QUEUE_NUMS + 1), ResponseCode.INVALID_PARAMETER, "writeQueueNums 16385"),
        (header(perm=8), ResponseCode.INVALID_PARAMETER, "perm 8"),
        (header(topic_filter_type="NO_TAG"), ResponseCode.INVALID_PARAMETER, "topicFilterType 'NO_TAG'"),
        (header(attributes="+message.type=MIXED"), ResponseCode.INVALID_PARAMETER, "MIXED message type"),
        (header(attributes="+message.type=LITE"), ResponseCode.SYSTEM_ERROR, "message.type=LITE"),
        (header(attributes="+x=1"), ResponseCode.SYSTEM_ERROR, "unsupported key: x"),
        (header(attributes="x=1"), ResponseCode.SYSTEM_ERROR, "'x=1'"),
        (header(attributes="+x"), ResponseCode.SYSTEM_ERROR, "'+x'"),
        (header(attributes="-message.type"), ResponseCode.SYSTEM_ERROR, "message.type"),
    ],
)
def test_bad_requests_are_named_and_change_nothing(parts, processor, told, wrong, code, named):
    before = dict(parts.topic_configs.topics)
    found_code, remark = refusal(processor.update_and_create_topic, wrong)
    assert found_code == code
    assert named in remark
    assert parts.topic_configs.topics == before
    assert told == []


def test_a_list_is_made_whole_or_not_at_all(parts, processor):
    good, bad = TopicConfig("Good"), TopicConfig("Bad", attributes={"+cleanup.policy": "NEVER"})
    _, remark = refusal(processor.update_and_create_topic_list, body=CreateTopicListRequestBody([good, bad]).encode())
    assert "cleanup.policy=NEVER" in remark
    assert parts.topic_configs.select("Good") is None


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b'{"topicConfigList":[{"readQueueNums":"x"}]}'])
def test_bad_lists_are_named(processor, body):
    code, remark = refusal(processor.update_and_create_topic_list, body=body)
    assert code == ResponseCode.SYSTEM_ERROR
    assert "the body of the request" in remark


def test_attributes_as_text():
    assert parse_attributes("") == {}
    assert parse_attributes("+a=1,-b,+c=x=y") == {"+a": "1", "-b": "", "+c": "x=y"}


def test_filter_types_are_those_of_topics():
    assert set(TopicFilterType.__members__) == set(TopicFilterType)


@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "topic attribute `message.type`: kept and shown; as in RocketMQ it is the proxy that checks it, not the broker",
)
def test_mixed_topics_are_made_where_they_are_allowed(parts, processor):
    apply_updates([parts.config], {"enableMixedMessageType": "true"})
    assert call(processor.update_and_create_topic, header(attributes="+message.type=MIXED")).code == 0
    assert parts.topic_configs.select("T").attributes == {"message.type": "MIXED"}


@pytest.fixture
def processor_delete_topic_in_broker(parts, store):
    return family(TopicRequests, parts, deletion=store.deletion)


def fill(parts, store, topic):
    parts.topic_configs.update(TopicConfig(topic))
    store.appender.put_message(message(topic=topic))
    store.appender.dispatch()
    parts.offsets.commit("g", topic, 0, 1)
    parts.stats.topic_put(topic).add(1, 100)


async def test_all_that_is_known_of_a_topic_goes(parts, store, processor_delete_topic_in_broker, tmp_path):
    fill(parts, store, "T")
    fill(parts, store, "Other")
    assert await call_async(processor_delete_topic_in_broker.delete_topic_in_broker, DeleteTopicRequestHeader("T")) == (
        0,
        None,
        {},
        b"",
    )
    assert parts.topic_configs.select("T") is None
    assert parts.offsets.table == {"Other@g": {0: 1}}
    assert store.queues.max_offset_in_queue("T", 0) == 0
    assert parts.stats.view("TOPIC_PUT_NUMS", "T") is None
    assert parts.stats.view("TOPIC_PUT_NUMS", "Other").stats_minute.sum == 1
    store.queues.remove_retired()
    assert [path.name for path in (tmp_path / "store" / "consumequeue").iterdir()] == ["Other"]


async def test_a_topic_of_the_same_name_begins_at_0(parts, store, processor_delete_topic_in_broker):
    fill(parts, store, "T")
    await call_async(processor_delete_topic_in_broker.delete_topic_in_broker, DeleteTopicRequestHeader("T"))
    fill(parts, store, "T")
    assert store.queues.max_offset_in_queue("T", 0) == 1
    store.queues.remove_retired()
    assert store.queries.message_store_timestamp("T", 0, 0) == parts.clock.time_ms()


async def test_recorded_requests(processor_delete_topic_in_broker):
    for command, theirs in recorded(215, DeleteTopicRequestHeader):
        assert await call_async(processor_delete_topic_in_broker.delete_topic_in_broker, command.header) == theirs


async def test_a_topic_that_the_disk_keeps_stays(parts, store, processor_delete_topic_in_broker, monkeypatch):
    fill(parts, store, "T")

    def refuse(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(LocalFileSystem, "rename", refuse)
    code, remark = await refusal_async(
        processor_delete_topic_in_broker.delete_topic_in_broker, DeleteTopicRequestHeader("T")
    )
    assert code == ResponseCode.SYSTEM_ERROR
    assert "topic T cannot be removed" in remark
    assert "Read-only file system" in remark
    assert parts.topic_configs.select("T") is not None
    assert parts.offsets.query("g", "T", 0) == store.queues.max_offset_in_queue("T", 0) == 1


@pytest.mark.parametrize(
    "topic",
    [
        "../consumequeue",
        "..",
        "",
        " ",
        "a/b",
        "t" * 128,
        "TBW102",
        "DefaultCluster",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
    ],
)
async def test_bad_names_touch_nothing(parts, store, processor_delete_topic_in_broker, topic):
    fill(parts, store, "T")
    topics = dict(parts.topic_configs.topics)
    code, remark = await refusal_async(
        processor_delete_topic_in_broker.delete_topic_in_broker, DeleteTopicRequestHeader(topic)
    )
    assert code == ResponseCode.INVALID_PARAMETER
    assert remark
    assert parts.topic_configs.topics == topics
    assert store.queues.max_offset_in_queue("T", 0) == 1


def load(parts, body):
    """Create the topics that a recorded broker had."""
    wrapper = TopicConfigAndMappingSerializeWrapper.decode(fastjson.dumps(body))
    parts.topic_configs.topics = wrapper.topic_config_table
    parts.topic_configs.data_version = wrapper.data_version


async def test_recorded_tables_and_pages(parts, encoder):
    processor = family(TopicRequests, parts, encoder=encoder)
    whole = pages = 0
    for command, theirs in recorded(21, GetAllTopicConfigRequestHeader):
        total, size = int(theirs.fields["totalTopicNum"]), len(theirs.body["topicConfigTable"])
        if size == total:
            load(parts, theirs.body)
            whole += 1
        elif len(parts.topic_configs.topics) != total:
            continue  # a page of a table of which no whole was recorded just before
        else:
            version = TopicConfigAndMappingSerializeWrapper.decode(fastjson.dumps(theirs.body)).data_version
            parts.topic_configs.data_version = version
            pages += 1
        ours = await call_async(processor.get_all_topic_config, command.header)
        # There are no static topics here, hence no version of theirs.
        ours.body["mappingDataVersion"] = theirs.body["mappingDataVersion"]
        theirs.body.setdefault("topicQueueMappingInfoMap", {})
        theirs.body["topicQueueMappingDetailMap"] = {}
        assert ours == theirs
    assert whole > 30
    assert pages > 0


async def test_whole_table_without_fields(parts, encoder):
    answer = await call_async(
        family(TopicRequests, parts, encoder=encoder).get_all_topic_config, GetAllTopicConfigRequestHeader()
    )
    assert set(answer.body["topicConfigTable"]) == set(parts.topic_configs.topics)
    assert answer.fields == {"totalTopicNum": str(len(parts.topic_configs.topics))}


def test_recorded_requests_get_topic_config(parts):
    processor = family(TopicRequests, parts)
    codes = set()
    for command, theirs in recorded(351, GetTopicConfigRequestHeader):
        if theirs.body and "mappingDetail" in theirs.body:
            continue  # a static topic
        parts.topic_configs.topics.pop(command.header.topic, None)
        if theirs.body:
            fields = theirs.body
            parts.topic_configs.topics[command.header.topic] = TopicConfig(
                fields["topicName"],
                fields["readQueueNums"],
                fields["writeQueueNums"],
                fields["perm"],
                fields["topicFilterType"],
                fields["topicSysFlag"],
                fields["order"],
                fields["attributes"],
            )
        assert call(processor.get_topic_config, command.header) == theirs
        codes.add(theirs.code)
    assert codes == {0, ResponseCode.TOPIC_NOT_EXIST}


@pytest.mark.parametrize("topic", ["../up", "a/b", ""])
def test_bad_names_are_named(parts, topic):
    code, remark = refusal(family(TopicRequests, parts).get_topic_config, GetTopicConfigRequestHeader(topic))
    assert code == ResponseCode.INVALID_PARAMETER
    assert repr(topic) in remark


def test_recorded_lists(parts):
    processor = family(TopicRequests, parts)
    seen = 0
    for _, theirs in recorded(305):
        theirs.body["topicList"].sort()
        assert call(processor.get_system_topic_list_from_broker) == theirs
        seen += 1
    assert seen == 3


@pytest.fixture
def remover(parts, store):
    return family(TopicRequests, parts, deletion=store.deletion).remove_unused


def fill_unused_topic_remover(parts, store, topic):
    store.appender.put_message(message(topic=topic))
    store.appender.dispatch()
    parts.offsets.commit("g", topic, 0, 1)
    parts.stats.topic_put(topic).add(1, 100)


async def test_topics_that_are_in_the_table_or_the_systems_own_stay(parts, store, remover):
    for topic in ("Kept", "Gone", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC"):
        fill_unused_topic_remover(parts, store, topic)
    parts.topic_configs.update(TopicConfig("Kept"))
    assert await remover(["Kept", "Gone", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC"]) == {"Gone"}
    assert store.queues.topics == {"Kept", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC"}
    assert "Gone@g" not in parts.offsets.table
    assert parts.stats.view("TOPIC_PUT_NUMS", "Gone") is None
    assert parts.offsets.query("g", "Kept", 0) == 1


async def test_consumers_of_a_recreated_topic_skip_nothing(parts, store, remover):
    fill_unused_topic_remover(parts, store, "T")
    await remover({"T"})
    fill_unused_topic_remover(parts, store, "T")
    assert (store.queues.min_offset_in_queue("T", 0), store.queues.max_offset_in_queue("T", 0)) == (0, 1)
    assert parts.offsets.query("other", "T", 0) == -1


async def test_a_disk_that_refuses_is_named_with_the_topic(parts, store, remover, monkeypatch):
    fill_unused_topic_remover(parts, store, "T")

    async def refuse(_topics):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(store.deletion, "delete_topics", refuse)
    with pytest.raises(BrokerResponseError) as caught:
        await remover({"T"})
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert caught.value.remark == "the queues of topic T cannot be removed: [Errno 30] Read-only file system"
    assert parts.offsets.query("g", "T", 0) == 1


async def test_queues_of_topics_that_do_not_exist_go(parts, store, caplog, tmp_path):
    for topic in ("Kept", "Gone", "GoneToo"):
        store.appender.put_message(message(topic=topic))
    store.appender.dispatch()
    parts.topic_configs.update(TopicConfig("Kept"))
    processor = family(TopicRequests, parts, queues=store.queues, deletion=store.deletion)

    with caplog.at_level(logging.WARNING):
        assert await call_async(processor.clean_unused_topic) == (0, None, {}, b"")
        assert await call_async(processor.clean_unused_topic) == (0, None, {}, b"")

    assert "unused topics cleaned by 127.0.0.1:50000: Gone, GoneToo" in caplog.text
    assert "unused topics cleaned by 127.0.0.1:50000: none" in caplog.text
    store.queues.remove_retired()
    assert [path.name for path in (tmp_path / "store" / "consumequeue").iterdir()] == ["Kept"]


class Cleaning:
    """Stands for a log that begins where it is said."""

    def __init__(self, store, begin, refused: str):
        self.store = store
        self.begin = begin
        self.refused = refused

    async def clean_expired_consume_queue(self) -> str:
        self.store.queues.correct_min_offsets(self.begin)
        return self.refused


def processor_for(parts, store, begin, refused=""):
    cleaning = Cleaning(store, begin, refused)
    return family(TopicRequests, parts, cleaning=cleaning, queues=store.queues, deletion=store.deletion)


async def test_queues_go_whose_topic_is_gone_and_whose_messages_are_too(parts, store, caplog):
    for topic in ("OldAndGone", "OldAndKept", "HalfOld"):
        store.appender.put_message(message(topic=topic))
    begin = store.appender.put_message(message(topic="HalfOld", queue_id=1)).physical_offset
    store.appender.dispatch()
    parts.topic_configs.update(TopicConfig("OldAndKept"))

    with caplog.at_level(logging.WARNING):
        answer = await call_async(processor_for(parts, store, begin).clean_expired_consumequeue)

    assert answer == (0, None, {}, b"")
    assert store.queues.topics == {"OldAndKept", "HalfOld"}
    assert (store.queues.min_offset_in_queue("OldAndKept", 0), store.queues.max_offset_in_queue("OldAndKept", 0)) == (
        1,
        1,
    )
    assert "expired queues cleaned by 127.0.0.1:50000; removed topics: ['OldAndGone']" in caplog.text


async def test_a_failed_removal_is_answered_and_the_rest_is_done(parts, store):
    store.appender.put_message(message(topic="Gone"))
    begin = store.appender.put_message(message(topic="Kept")).physical_offset
    store.appender.dispatch()

    with pytest.raises(BrokerResponseError) as caught:
        await call_async(
            processor_for(parts, store, begin, "files that could not be removed: 1").clean_expired_consumequeue
        )

    assert (caught.value.code, caught.value.remark) == (1, "files that could not be removed: 1; the rest is cleaned")
    assert store.queues.topics == {"Kept"}


async def test_while_all_messages_are_there_nothing_goes(parts, store):
    store.appender.put_message(message(topic="Gone"))
    store.appender.dispatch()

    assert await call_async(processor_for(parts, store, 0).clean_expired_consumequeue) == (0, None, {}, b"")

    assert store.queues.topics == {"Gone"}


async def test_retry_topics_of_pop_go_with_their_topic(parts, store, processor_delete_topic_in_broker):
    for topic in ("T", "%RETRY%g_T", "%RETRY%g+T", "%RETRY%g", "%RETRY%g_Other"):
        fill(parts, store, topic)
    await call_async(processor_delete_topic_in_broker.delete_topic_in_broker, DeleteTopicRequestHeader("T"))

    kept = {"%RETRY%g", "%RETRY%g_Other"}
    assert {name for name in parts.topic_configs.topics if name.startswith("%RETRY%")} == kept
    assert parts.offsets.table.keys() == {f"{topic}@g" for topic in kept}
    assert store.queues.max_offset_in_queue("%RETRY%g_T", 0) == 0


async def test_retry_topics_stay_if_they_are_not_to_be_cleared(parts, store, processor_delete_topic_in_broker):
    apply_updates([parts.config], {"clearRetryTopicWhenDeleteTopic": "false"})
    fill(parts, store, "T")
    fill(parts, store, "%RETRY%g_T")
    await call_async(processor_delete_topic_in_broker.delete_topic_in_broker, DeleteTopicRequestHeader("T"))

    assert parts.topic_configs.select("T") is None
    assert parts.topic_configs.select("%RETRY%g_T") is not None


async def test_system_topics_change_only_where_they_may(parts, store, processor, processor_delete_topic_in_broker):
    changed = header(topic="TBW102", write_queue_nums=16)
    code, remark = refusal(processor.update_and_create_topic, changed)
    assert (code, remark) == (ResponseCode.INVALID_PARAMETER, "The topic[TBW102] is conflict with system topic.")
    apply_updates([parts.config], {"validateSystemTopicWhenUpdateTopic": "false"})

    assert call(processor.update_and_create_topic, changed).code == 0
    assert parts.topic_configs.select("TBW102").write_queue_nums == 16
    code, _ = await refusal_async(
        processor_delete_topic_in_broker.delete_topic_in_broker, DeleteTopicRequestHeader("TBW102")
    )
    assert code == ResponseCode.INVALID_PARAMETER
