"""Returns of messages: their copies, topics that do not exist, and disks that refuse."""

from pathlib import Path

import pytest

from rocketbroker.broker.pop import pop_revive_service
from rocketbroker.codec.message.message_properties import MAX_PROPERTIES_LENGTH
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus
from tests.support.pop_broker import TOPIC, Handed, PopBroker
from tests.support.running import running
from tests.support.stores import count_as_far_back, read_queue

V1, V2 = "%RETRY%G_T", "%RETRY%G+T"


async def in_flight(broker: PopBroker, *bodies: bytes, **properties: str) -> list[Handed]:
    """Send messages and pop them for a second."""
    for body in bodies:
        broker.send(body, 0, TOPIC, **properties)
    return await broker.pop(queue_id=0, invisible_ms=1_000)


def damage(path: Path, found: bytes, other: bytes) -> None:
    """Replace bytes of a file."""
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(found))
        file.write(other)


async def after(broker: PopBroker, seconds: float) -> list[bytes]:
    """Let time pass; return all copies in the retry topic."""
    broker.clock.advance(seconds)
    await broker.run()
    return [bytes(each.body) for each in read_queue(broker.store, V1, 0)]


async def test_a_message_returns_once_and_not_early(broker: PopBroker) -> None:
    await in_flight(broker, b"a")
    assert await after(broker, 0.999) == []
    assert await after(broker, 0.001) == [b"a"]
    assert await after(broker, 100) == [b"a"]
    assert broker.check_points.count == 0


async def test_a_copy_says_where_it_comes_from(broker: PopBroker) -> None:
    (first,) = await in_flight(broker, b"a", TAGS="x", KEYS="k")
    await after(broker, 1)
    (copy,) = read_queue(broker.store, V1, 0)
    assert copy.properties == {
        "TAGS": "x",
        "KEYS": "k",
        "1ST_POP_TIME": str(first.info.pop_time),
        "ORIGIN_GROUP": "G",
    }
    assert (copy.reconsume_times, copy.born_timestamp) == (1, first.message.born_timestamp)
    (again,) = await broker.pop(invisible_ms=1_000)
    assert (again.message.reconsume_times, again.info.retry, again.message.topic) == (1, "1", TOPIC)
    await after(broker, 1)
    # The time of the first pop stays.
    (_, copy) = read_queue(broker.store, V1, 0)
    assert (copy.reconsume_times, copy.properties["1ST_POP_TIME"]) == (2, str(first.info.pop_time))
    assert "POP_CK" not in copy.properties


async def test_a_copy_has_no_handle_of_an_earlier_delivery(broker: PopBroker) -> None:
    """Messages of a batch may have one."""
    await in_flight(broker, b"a", POP_CK="9 1 60000 3 0 broker-b 0 9", A="a")
    await after(broker, 1)
    (copy,) = read_queue(broker.store, V1, 0)
    assert (copy.properties["A"], "POP_CK" in copy.properties) == ("a", False)


async def test_a_suspended_message_returns_uncounted(broker: PopBroker) -> None:
    (found,) = await in_flight(broker, b"a")
    await broker.change("G", found, 500, suspend=True)
    await after(broker, 1)
    (copy,) = read_queue(broker.store, V1, 0)
    assert copy.reconsume_times == 0


async def test_a_message_with_full_properties_returns_without_more(broker: PopBroker) -> None:
    await in_flight(broker, b"a")
    (original,) = read_queue(broker.store, TOPIC, 0)
    original.properties_bytes = b"A\x01" + b"x" * (MAX_PROPERTIES_LENGTH - 10) + b"\x02"
    (check_point,) = broker.check_points.queues.get(TOPIC, "G", 0).open.values()
    assert broker.revive.copy(original, check_point, V1, 0).properties == original.properties_bytes


async def test_new_retry_topics_have_the_name_of_their_version(tmp_path: Path) -> None:
    config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", enable_retry_topic_v2=True)
    apply_updates([config], {"retrieveMessageFromPopRetryTopicV1": "false"})
    async with running(PopBroker(tmp_path / "store", config=config)) as broker:
        await in_flight(broker, b"a")
        assert await after(broker, 1) == []
        assert [bytes(each.body) for each in read_queue(broker.store, V2, 0)] == [b"a"]
        (again,) = await broker.pop(invisible_ms=1_000)
        assert again.info.retry == "2"
        await broker.ack("G", again)
        assert broker.check_points.count == 0


async def test_what_a_retry_topic_has_returns_to_it(broker: PopBroker) -> None:
    broker.topics.update(TopicConfig(V2, 1, 1))
    broker.send(b"old", topic=V2)
    new_names = {"enableRetryTopicV2": "true", "retrieveMessageFromPopRetryTopicV1": "false"}
    apply_updates([broker.config], new_names)
    (found,) = await broker.pop(invisible_ms=1_000)
    assert found.info.retry == "2"
    apply_updates([broker.config], {"enableRetryTopicV2": "false"})
    await after(broker, 1)
    assert [bytes(each.body) for each in read_queue(broker.store, V2, 0)] == [b"old", b"old"]


async def popped_and_returned(broker: PopBroker, queue_id: int, topic: str = TOPIC) -> list[tuple[int, int]]:
    """Let a message of a queue return; return the messages of each queue of the retry topic that has some."""
    broker.send(b"a", queue_id, topic)
    (found,) = await broker.pop(queue_id=queue_id, topic=topic, invisible_ms=1_000, most=1)
    assert found.info.queue_id == queue_id
    broker.clock.advance(1)
    await broker.run()
    queues = broker.store.queues.queues_of(f"%RETRY%G_{topic}")
    return sorted((each, queue.max_offset) for each, queue in queues.items() if queue.max_offset)


async def test_messages_return_to_the_queue_of_their_number_if_that_is_set(broker: PopBroker) -> None:
    assert await popped_and_returned(broker, 1) == [(0, 1)]
    apply_updates([broker.config], {"useSeparateRetryQueue": "true", "popFromRetryProbability": "0"})
    assert await popped_and_returned(broker, 1) == [(0, 1), (1, 1)]
    retry_topic = broker.topics.select(V1)
    assert retry_topic is not None
    assert (retry_topic.read_queue_nums, retry_topic.write_queue_nums) == (2, 2)
    assert broker.offsets.query("G", V1, 1) == 0


async def test_a_retry_topic_gets_the_queues_that_its_topic_gets(broker: PopBroker) -> None:
    apply_updates([broker.config], {"useSeparateRetryQueue": "true", "popFromRetryProbability": "0"})
    assert await popped_and_returned(broker, 0) == [(0, 1)]
    broker.topics.update(TopicConfig(TOPIC, 4, 4))
    assert await popped_and_returned(broker, 3) == [(0, 1), (3, 1)]
    # A topic with fewer queues takes none from the retry topic; a queue beyond its own is 0.
    broker.topics.update(TopicConfig(TOPIC, 4, 1))
    assert await popped_and_returned(broker, 3) == [(0, 1), (3, 2)]
    broker.topics.update(TopicConfig("U", 4, 1))
    assert await popped_and_returned(broker, 3, "U") == [(0, 1)]


@pytest.mark.parametrize(("read", "write"), [(2, 4), (4, 2)])
async def test_a_copy_goes_to_a_queue_that_is_read_and_written(broker: PopBroker, read: int, write: int) -> None:
    apply_updates([broker.config], {"useSeparateRetryQueue": "true", "popFromRetryProbability": "0"})
    broker.topics.update(TopicConfig(TOPIC, 4, 4))
    broker.topics.update(TopicConfig(V1, read, write))
    assert await popped_and_returned(broker, 3) == [(3, 1)]
    (again,) = await broker.pop()
    assert (again.info.retry, again.info.queue_id) == ("1", 3)


async def test_a_copy_waits_until_its_queue_is_read_on_disk(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_updates([broker.config], {"useSeparateRetryQueue": "true"})
    broker.topics.update(TopicConfig(V1, 1, 2))
    monkeypatch.setattr(broker.topics, "_on_persist", lambda _table: None)
    assert await popped_and_returned(broker, 1) == []


async def test_a_message_returns_to_the_first_queue_if_its_own_cannot_be_made(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_updates([broker.config], {"useSeparateRetryQueue": "true", "popFromRetryProbability": "0"})
    put = broker.store.appender.put_copy
    failed = PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, reason="no mappings are left")
    monkeypatch.setattr(broker.store.appender, "put_copy", lambda each: failed if each.queue_id else put(each))
    assert await popped_and_returned(broker, 1) == [(0, 1)]


async def test_what_returned_stays_in_its_queue(broker: PopBroker) -> None:
    apply_updates([broker.config], {"useSeparateRetryQueue": "true"})
    assert await popped_and_returned(broker, 1) == [(1, 1)]
    (again,) = await broker.pop(invisible_ms=1_000)
    assert (again.info.retry, again.info.queue_id) == ("1", 1)
    assert await after(broker, 1) == []
    assert len(read_queue(broker.store, V1, 1)) == 2


async def test_no_copy_is_stored_before_its_topic_is_on_disk(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await in_flight(broker, b"a")
    monkeypatch.setattr(broker.topics, "on_disk", lambda _topic: None)
    assert await after(broker, 1) == []
    assert broker.topics.select(V1) is not None
    monkeypatch.undo()
    assert await after(broker, 0.1) == [b"a"]


async def test_messages_of_a_deleted_group_or_topic_do_not_return(
    broker: PopBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await in_flight(broker, b"a")
    broker.groups.delete("G")
    assert await after(broker, 1) == []
    assert "messages of topic T do not return to group G: the group is gone" in caplog.text
    await in_flight(broker, b"b")
    broker.topics.delete(TOPIC)
    assert await after(broker, 1) == []
    assert "messages of topic T do not return to group G: the topic is gone" in caplog.text
    assert broker.check_points.count == 0


async def test_messages_of_an_absent_group_return_if_that_is_set(broker: PopBroker) -> None:
    apply_updates([broker.config], {"popReviveSkipIfGroupAbsent": "false"})
    await in_flight(broker, b"a")
    broker.groups.delete("G")
    assert await after(broker, 1) == [b"a"]


async def test_a_damaged_message_is_left_out(broker: PopBroker, caplog: pytest.LogCaptureFixture) -> None:
    await in_flight(broker, b"damaged", b"b")
    path = Path(broker.store.config.store_path_root_dir, "commitlog", "0" * 20)
    damage(path, b"damaged", b"DAMAGED")
    assert await after(broker, 1) == [b"b"]
    assert "message 0 of topic T, queue 0, does not return to group G: it is removed or damaged" in caplog.text
    assert broker.check_points.count == 0


async def test_messages_of_a_queue_that_is_gone_do_not_return(broker: PopBroker) -> None:
    await in_flight(broker, b"a")
    await broker.store.deletion.delete_topics({TOPIC})
    assert await after(broker, 1) == []
    assert broker.check_points.count == 0


@pytest.mark.parametrize("problem", ["put", "read", "topic"])
async def test_what_cannot_return_is_tried_again(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, problem: str
) -> None:
    await in_flight(broker, b"a")
    with monkeypatch.context() as patch:
        if problem == "put":
            full = PutMessageResult(PutMessageStatus.DISK_FULL, reason="full")
            patch.setattr(broker.store.appender, "put_copy", lambda _: full)
        elif problem == "read":

            async def fail(*_: object) -> None:
                raise StoreError("no disk")

            patch.setattr(broker.store.entry_reader, "records", fail)
        else:

            def refuse(*_: object) -> None:
                raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, "too many topics")

            patch.setattr(broker.topics, "create_in_send_message_back", refuse)
        assert await after(broker, 1) == []
    assert "messages of topic T that group G popped cannot return, and are tried again: " in caplog.text
    text = {"put": "[DISK_FULL] full", "read": "no disk", "topic": "too many topics"}[problem]
    assert text in caplog.text
    assert await after(broker, pop_revive_service._RETRY_MS / 1000) == [b"a"]


async def test_a_message_that_no_store_takes_is_lost_and_logged(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await in_flight(broker, b"a")
    put = broker.store.appender.put_copy
    illegal = PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, reason="too long")
    monkeypatch.setattr(broker.store.appender, "put_copy", lambda each: illegal if each.topic == V1 else put(each))
    assert await after(broker, 1) == []
    assert "message 0 of topic T is lost: too long" in caplog.text
    assert broker.check_points.count == 0


async def test_a_message_acknowledged_while_it_is_read_does_not_return(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = await in_flight(broker, b"a", b"b")
    records = broker.store.entry_reader.records

    async def read(*args: object) -> list[memoryview]:
        found = await records(*args)  # type: ignore[arg-type]
        await broker.ack("G", first)
        return found

    monkeypatch.setattr(broker.store.entry_reader, "records", read)
    assert await after(broker, 1) == [b"b"]


async def test_messages_that_are_not_in_memory_return(broker: PopBroker) -> None:
    await in_flight(broker, b"a", b"b")
    count_as_far_back(broker.store)
    assert await after(broker, 1) == [b"a", b"b"]


async def test_many_check_points_return_in_parts(broker: PopBroker) -> None:
    number = 2 * pop_revive_service._MOST_DUE + 3
    for _ in range(number):
        await in_flight(broker, b"a")
    broker.clock.advance(2)
    parts = 0
    while await broker.revive.advance() == 0.0:
        parts += 1
        assert broker.check_points.count == max(number - parts * pop_revive_service._MOST_DUE, 0)
    assert parts == 3


async def test_large_check_points_return_in_parts(broker: PopBroker) -> None:
    for _ in range(5):
        await in_flight(broker, *[b"a"] * 32)
    broker.clock.advance(2)
    left = []
    while await broker.revive.advance() == 0.0:
        left.append(broker.check_points.count)
    assert left == [3, 1, 0]


async def test_the_service_runs_by_itself(broker: PopBroker) -> None:
    assert await broker.revive.advance() > 0
    await in_flight(broker, b"a")
    broker.clock.advance(0.5)
    assert await broker.revive.advance() == pytest.approx(0.5, abs=0.2)
    async with running(broker.revive):
        pass
