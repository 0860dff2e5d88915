"""Pulls against a running store: what is found, what waits, and how each other outcome is answered."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.longpolling.pull_request import PullRequest
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.codec.message.message_decoder import BODY_POSITION, decode_messages
from rocketbroker.codec.remoting.bodies.client import ConsumerData, ConsumeType, MessageModel, SubscriptionData
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.frame import decode_frame
from rocketbroker.codec.remoting.handler import HELD, Audience, Buffer, InTurn
from rocketbroker.codec.remoting.headers.message import PullMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.dispatch.commit_log_dispatcher import NoListener
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeConnection
from tests.support.processor_calls import recorded
from tests.support.processors import pull_processor
from tests.support.stores import count_as_far_back, message, read_queue

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
CLUSTERING, BROADCASTING = MessageModel.CLUSTERING, MessageModel.BROADCASTING
PULL, LITE_PULL = RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE


class HoldService(PullRequestHoldService):
    """Tells the test what it holds."""

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__(config)
        self.suspended: list[PullRequest] = []

    def suspend(self, request: PullRequest, max_offset: int, timeout_ms: int) -> None:
        self.suspended.append(request)
        super().suspend(request, max_offset, timeout_ms)


class Puller:
    """A consumer of group ``G`` and the processor that serves it."""

    def __init__(self, parts: SimpleNamespace, store: MessageStore) -> None:
        self.parts = parts
        self.store = store
        self.connection = FakeConnection()
        self.holds = HoldService(parts.config)
        self.processor = pull_processor(parts, store, self.holds)

    def subscribe(
        self, expression: str = "*", version: int = 100, model: MessageModel = MessageModel.CLUSTERING
    ) -> None:
        data = ConsumerData(
            "G",
            ConsumeType.CONSUME_PASSIVELY,
            model,
            subscription_data_set=[SubscriptionData("T", expression, version)],
        )
        channel = ClientChannelInfo(self.connection, "client", "JAVA", 513, self.parts.clock.monotonic())
        self.parts.consumers.register(channel, data)

    def put(self, *tags: str, topic: str = "T", queue_id: int = 0) -> None:
        for tag in tags:
            self.store.appender.put_message(message(tag.encode(), topic, queue_id, properties={"TAGS": tag}))
        self.store.appender.dispatch()

    def pull(self, offset: int = 0, flags: int = SUBSCRIPTION, code: int = PULL, **fields: Any) -> Any:
        values: dict[str, Any] = {
            "consumer_group": "G",
            "topic": "T",
            "queue_id": 0,
            "queue_offset": offset,
            "max_msg_nums": 32,
            "sys_flag": flags,
            "commit_offset": 0,
            "suspend_timeout_millis": 60_000,
            "sub_version": 100,
            "subscription": "*",
        }
        header = PullMessageRequestHeader(**(values | fields))
        return self.processor.pull_message(self.connection, request(code, header))

    def refused(self, **fields: Any) -> tuple[int, str]:
        with pytest.raises(BrokerResponseError) as error:
            self.pull(**fields)
        return error.value.code, error.value.remark


@pytest.fixture
def puller(parts: SimpleNamespace, store: MessageStore) -> Puller:
    parts.topic_configs.update(TopicConfig("T", 4, 4))
    parts.subscription_groups.find("G")
    return Puller(parts, store)


def decoded(pieces: Sequence[Buffer]) -> Command:
    assert isinstance(pieces, list)
    return decode_frame(memoryview(b"".join(pieces))[4:])


def outcome(pieces: Sequence[Buffer]) -> tuple[int, int]:
    """Code and nextBeginOffset."""
    answer = decoded(pieces)
    assert isinstance(answer.header, dict)
    return answer.code, int(answer.header["nextBeginOffset"])


def bodies(pieces: Sequence[Buffer]) -> list[bytes]:
    return [each.body for each in decode_messages(bytes(decoded(pieces).body), decompress=False)]


def test_what_is_found_are_the_records_as_stored(puller: Puller):
    puller.put("a", "b", "c")
    answer = decoded(puller.pull(1))
    assert answer.code == 0
    assert answer.header == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "3",
        "minOffset": "0",
        "maxOffset": "3",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
    records = [puller.store.commit_log.record(each.commit_log_offset) for each in read_queue(puller.store, "T", 0, 1)]
    assert bytes(answer.body) == b"".join(record or b"" for record in records)


def test_no_more_messages_than_asked_for(puller: Puller):
    puller.put(*"abcde")
    assert bodies(puller.pull(1, max_msg_nums=2)) == [b"b", b"c"]
    assert outcome(puller.pull(1, max_msg_nums=2)) == (0, 3)


def test_only_wanted_tags_are_found(puller: Puller):
    puller.put(*"abcab")
    assert bodies(puller.pull(subscription="a || c")) == [b"a", b"c", b"a"]
    assert outcome(puller.pull(subscription="z")) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 5)


def test_the_heartbeat_s_subscription_holds_where_the_pull_has_none(puller: Puller):
    puller.subscribe("b")
    puller.put(*"abc")
    assert bodies(puller.pull(flags=0)) == [b"b"]


@pytest.mark.parametrize(("offset", "moved_to"), [(5, 2), (3, 2), (-1, 0)])
def test_an_offset_outside_the_queue_is_moved(puller: Puller, offset: int, moved_to: int):
    puller.put("a", "b")
    assert outcome(puller.pull(offset, SUBSCRIPTION | SUSPEND)) == (ResponseCode.PULL_OFFSET_MOVED, moved_to)
    assert puller.holds.held == 0


def test_a_pull_at_the_end_does_not_wait_unless_it_asks_for_it(puller: Puller):
    puller.put("a")
    assert outcome(puller.pull(1)) == (ResponseCode.PULL_NOT_FOUND, 1)
    assert puller.holds.held == 0


async def test_a_held_pull_is_resumed_once(puller: Puller):
    puller.put("a")
    assert puller.pull(1, SUBSCRIPTION | SUSPEND) is HELD
    (held,) = puller.holds.suspended
    puller.put("b")
    assert bodies(run(held)) == [b"b"]
    held.command.header.queue_offset = 2
    assert outcome(run(held)) == (ResponseCode.PULL_NOT_FOUND, 2)
    assert puller.holds.held == 1, "it was not held again"
    await puller.holds.stop()


def run(held: PullRequest) -> Any:
    """Run a held pull again."""
    return held.run(held.connection, held.command, held)


async def test_a_held_pull_of_a_deleted_topic_is_rejected(puller: Puller):
    puller.pull(0, SUBSCRIPTION | SUSPEND)
    (held,) = puller.holds.suspended
    puller.parts.topic_configs.delete("T")
    with pytest.raises(BrokerResponseError) as error:
        run(held)
    assert error.value.code == ResponseCode.TOPIC_NOT_EXIST
    await puller.holds.stop()


async def test_a_held_pull_keeps_no_text(puller: Puller):
    long = "x" * 1_000_000
    texts: dict[str, Any] = {
        "proxy_froward_client_id": long,
        "lite_topic": long,
        "expression_type": "TAG",
        "subscription": "b",
    }
    header = PullMessageRequestHeader("G", "T", 0, 0, 32, SUBSCRIPTION | SUSPEND, 0, 60_000, 100, **texts)
    command = request(PULL, header, b"view")
    command.language = command.remark = command.serialize_type = long
    assert puller.processor.pull_message(puller.connection, command) is HELD

    (held,) = puller.holds.suspended
    assert sum(map(len, texts_of(held.command))) < 100

    puller.put("a", "b")
    assert bodies(run(held)) == [b"b"], "it wants what it wanted"
    await puller.holds.stop()


def texts_of(command: Command) -> list[str]:
    """All texts that a command keeps."""
    values = [getattr(part, name) for part in (command, command.header) for name in part.__struct_fields__]
    return [value for value in values if isinstance(value, str)]


def test_a_pull_commits_the_offset_it_carries(puller: Puller):
    puller.put("a", "b", "c")
    puller.pull(2, SUBSCRIPTION | COMMIT, commit_offset=2)
    assert puller.parts.offsets.query("G", "T", 0) == 2
    puller.pull(2, SUBSCRIPTION, commit_offset=1)
    assert puller.parts.offsets.query("G", "T", 0) == 2
    assert puller.parts.offsets.query_pull("G", "T", 0) == 3


@pytest.mark.parametrize("cached", [False, True])
async def test_messages_far_back_are_checked_when_read(puller: Puller, monkeypatch: pytest.MonkeyPatch, cached: bool):
    monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: cached)
    puller.put("a", "b", "c")
    count_as_far_back(puller.store)
    damage(puller.store, 1)

    answer = puller.pull()

    assert isinstance(answer, InTurn) != cached
    assert bodies(await given(answer)) == [b"a", b"c"]
    assert puller.store.damage_log.count == 1


@pytest.fixture
async def old(puller: Puller) -> AsyncIterator[Puller]:
    """Four messages, stored before the store was opened."""
    puller.put("a", "b", "c", "d")
    await puller.store.stop()
    store = MessageStore(puller.store.config, bytes(8), NoListener(), puller.parts.clock)
    await store.start()
    yield Puller(puller.parts, store)
    await store.stop()


def damage(store: MessageStore, *numbers: int) -> None:
    """Change the bodies of messages in their file."""
    for number in numbers:
        entry = store.queues.queues_of("T")[0].entry(number)
        assert entry is not None
        file = store.commit_log.queue.files[0]
        os.pwrite(file.fd, b"?", entry[0] + BODY_POSITION)


async def given(answer: Any) -> Any:
    """Return the answer, after its messages have been read."""
    return await answer.work if isinstance(answer, InTurn) else answer


async def test_old_messages_are_given_without_those_that_are_damaged(old: Puller):
    assert bodies(await given(old.pull())) == [b"a", b"b", b"c", b"d"]
    damage(old.store, 1)

    answer = await given(old.pull())

    assert (bodies(answer), outcome(answer)) == ([b"a", b"c", b"d"], (ResponseCode.SUCCESS, 4))
    stats = old.parts.stats.group_get("T", "G")
    assert (stats.nums, stats.misses) == (7, 0)


async def test_a_consumer_continues_after_messages_that_are_all_damaged(old: Puller):
    damage(old.store, 0, 1)

    answer = await given(old.pull(max_msg_nums=2))

    assert outcome(answer) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2)
    assert not decoded(answer).body
    assert old.parts.stats.group_get("T", "G").misses == 1
    assert bodies(await given(old.pull(2))) == [b"c", b"d"]


async def test_old_messages_that_are_not_in_the_page_cache_are_read_on_a_thread(
    old: Puller, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: False)
    damage(old.store, 2)

    answer = old.pull()
    assert isinstance(answer, InTurn)
    assert bodies(await given(answer)) == [b"a", b"b", b"d"]


async def test_an_unreadable_disk_is_no_reason_to_skip_messages(old: Puller, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_arguments: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: False)
    monkeypatch.setattr("os.preadv", refuse)

    with pytest.raises(BrokerResponseError, match="Input/output error") as error:
        await given(old.pull())
    assert error.value.code == ResponseCode.SYSTEM_ERROR


def test_pulls_of_unknown_groups_leave_nothing_behind(puller: Puller):
    puller.put("a")
    parts = puller.parts
    before = parts.stats.runtime_info()["msgGetTotalTodayNow"]
    for number in range(2_000):
        assert bodies(puller.pull(consumer_group=f"made-up{number}"))
    assert not any(parts.subscription_groups.contains(f"made-up{number}") for number in range(2_000))
    assert parts.offsets.table == parts.offsets.pull_table == {}
    assert parts.stats._gets == {}
    assert int(parts.stats.runtime_info()["msgGetTotalTodayNow"]) - int(before) == 2_000


def test_a_pull_that_commits_an_offset_creates_its_group(puller: Puller):
    puller.put("a")
    puller.pull(flags=SUBSCRIPTION | COMMIT, commit_offset=1, consumer_group="new")
    assert puller.parts.subscription_groups.contains("new")
    assert puller.parts.offsets.query("new", "T", 0) == 1


def test_what_is_read_is_counted_by_group(puller: Puller):
    puller.put("a", "b")
    puller.pull()
    stats = puller.parts.stats.group_get("T", "G")
    assert (stats.nums, stats.misses) == (2, 0)
    puller.pull(2)
    assert (stats.nums, stats.misses) == (2, 1)


def test_a_topic_that_is_not_there_is_named(puller: Puller):
    code, remark = puller.refused(topic="Nowhere")
    assert code == ResponseCode.TOPIC_NOT_EXIST
    assert "Nowhere" in remark


@pytest.mark.parametrize("queue_id", [-1, 4])
def test_a_queue_that_is_not_there_is_named(puller: Puller, queue_id: int):
    code, remark = puller.refused(queue_id=queue_id)
    assert code == ResponseCode.INVALID_PARAMETER
    assert f"queueId[{queue_id}]" in remark


def test_without_permission_nothing_is_read(puller: Puller):
    puller.put("a")
    puller.parts.topic_configs.update(TopicConfig("T", 4, 4, perm=2))
    assert puller.refused()[0] == ResponseCode.NO_PERMISSION
    puller.parts.topic_configs.update(TopicConfig("T", 4, 4))
    apply_updates([puller.parts.config], {"brokerPermission": "2"})
    assert puller.refused()[0] == ResponseCode.NO_PERMISSION


def test_lite_pulls_can_be_switched_off(puller: Puller):
    puller.put("a")
    assert bodies(puller.pull(code=LITE_PULL)) == [b"a"]
    apply_updates([puller.parts.config], {"litePullMessageEnable": "false"})
    assert puller.refused(code=LITE_PULL)[0] == ResponseCode.NO_PERMISSION
    assert bodies(puller.pull()) == [b"a"]


def test_a_group_is_made_only_where_that_is_on(puller: Puller):
    apply_updates([puller.parts.config], {"autoCreateSubscriptionGroup": "false"})
    assert puller.refused(consumer_group="new")[0] == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_the_remark_tells_a_group_that_it_sent_no_heartbeat(puller: Puller):
    assert puller.refused(flags=0)[0] == ResponseCode.SUBSCRIPTION_NOT_EXIST


@pytest.mark.proves(
    "Consumers",
    "a subscription by tags that changes at run time is served before a heartbeat reports it",
)
def test_a_client_whose_new_tags_are_not_known_yet_gets_all_messages(puller: Puller):
    puller.subscribe("a", version=99)
    puller.put("a", "b", "c")
    assert bodies(puller.pull(flags=0, sub_version=99, expression_type="TAG")) == [b"a"]
    assert bodies(puller.pull(flags=0, expression_type="TAG")) == [b"a", b"b", b"c"]
    puller.subscribe("b", version=100)
    assert bodies(puller.pull(flags=0, expression_type="TAG")) == [b"b"]


async def test_a_held_pull_of_such_a_client_is_woken_by_any_message(puller: Puller):
    puller.subscribe("a", version=99)
    assert puller.pull(flags=SUSPEND, expression_type="TAG") is HELD
    (held,) = puller.holds.suspended
    assert held.tag_codes is None


@pytest.mark.parametrize(
    "fields", [{"expression_type": "SQL92"}, {"expression_type": None}, {"expression_type": "TAG", "flags": 8}]
)
def test_a_client_that_does_not_compare_tags_itself_waits_until_its_subscription_is_known(puller: Puller, fields):
    puller.subscribe("a", version=99)
    code, remark = puller.refused(**({"flags": 0} | fields))
    assert code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert remark == "the consumer's subscription not latest: no heartbeat brought version 100 yet"


def test_broadcasting_is_rejected_to_a_group_that_may_not(puller: Puller):
    puller.put("a")
    puller.subscribe(model=BROADCASTING)
    assert bodies(puller.pull(flags=0)) == [b"a"]
    group = puller.parts.subscription_groups.find("G")
    group.consume_broadcast_enable = False
    assert puller.refused(flags=0)[0] == ResponseCode.NO_PERMISSION


def test_a_group_that_is_suspended_or_forbidden_the_topic_is_rejected(puller: Puller):
    puller.put("a")
    puller.subscribe()
    groups = puller.parts.subscription_groups
    group = groups.find("G")
    group.consume_enable = False
    remark = "subscription group no permission, G: consumeEnable is false"
    assert puller.refused(flags=0) == puller.refused(flags=SUBSCRIPTION) == (ResponseCode.NO_PERMISSION, remark)
    group.consume_enable = True
    groups.update_forbidden("G", "T", 2, forbid=True)
    remark = "the consumer group[G] is forbidden for topic[T]"
    assert puller.refused(flags=0) == (ResponseCode.NO_PERMISSION, remark)
    groups.update_forbidden("G", "T", 2, forbid=False)
    assert bodies(puller.pull(flags=0)) == [b"a"]


@pytest.mark.parametrize(("code", "outcomes"), [(11, {0: 195, 19: 191}), (361, {0: 30})])
def test_recorded_pulls_are_answered_in_the_same_shape(puller: Puller, code: int, outcomes: dict[int, int]):
    """With queues as long as the recorded ones, and pulls that want all messages and do not wait."""
    seen: Counter[int] = Counter()
    for wanted, theirs in recorded(code, PullMessageRequestHeader):
        header = wanted.header
        if theirs.code not in {0, 19} or theirs.fields["minOffset"] != "0" or header.expression_type == "SQL92":
            continue
        header.sys_flag, header.subscription = SUBSCRIPTION, "*"
        if puller.parts.topic_configs.select(header.topic) is None:
            puller.parts.topic_configs.update(TopicConfig(header.topic, 8, 8))
        missing = int(theirs.fields["maxOffset"]) - puller.store.queues.max_offset_in_queue(
            header.topic, header.queue_id
        )
        if missing < 0:
            continue
        puller.put(*["tag"] * missing, topic=header.topic, queue_id=header.queue_id)
        pieces = puller.processor.pull_message(puller.connection, wanted)
        assert isinstance(pieces, list)
        ours = decoded(pieces)
        assert isinstance(ours.header, dict)
        assert (ours.code, ours.opaque, ours.header.keys()) == (theirs.code, wanted.opaque, theirs.fields.keys())
        for name in ("minOffset", "maxOffset", "suggestWhichBrokerId", "topicSysFlag", "groupSysFlag"):
            assert ours.header[name] == theirs.fields[name]
        seen[theirs.code] += 1
    assert seen == outcomes


async def test_a_reset_moves_the_pull_and_keeps_what_it_commits_out(puller: Puller):
    puller.subscribe()
    puller.put(*"abcd")
    offsets = puller.parts.offsets
    offsets.assign_reset("G", "T", 0, 1)
    answer = decoded(puller.pull(4, COMMIT | SUSPEND, commit_offset=4))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert (answer.header["nextBeginOffset"], answer.header["minOffset"], answer.header["maxOffset"]) == ("1", "0", "4")
    assert offsets.query("G", "T", 0) == 1
    assert bodies(puller.pull(1, COMMIT, commit_offset=1)) == [b"b", b"c", b"d"]
    assert bodies(puller.pull(3, COMMIT, commit_offset=3)) == [b"d"]
    assert offsets.query("G", "T", 0) == 3


async def test_a_client_that_pulls_from_the_new_offset_by_chance_is_redirected_too(puller: Puller):
    """It has what it pulled before, and would commit that."""
    puller.subscribe()
    puller.put("a", "b")
    puller.parts.offsets.assign_reset("G", "T", 0, 2)
    assert outcome(puller.pull(2, SUSPEND)) == (ResponseCode.PULL_OFFSET_MOVED, 2)
    assert not puller.parts.offsets.commit("G", "T", 0, 1)
    assert puller.pull(2, SUSPEND) is HELD
    assert puller.parts.offsets.commit("G", "T", 0, 2)


async def test_a_reset_ends_a_held_pull(puller: Puller):
    puller.subscribe()
    puller.put("a", "b")
    assert puller.pull(2, SUSPEND) is HELD
    puller.parts.offsets.assign_reset("G", "T", 0, 0)
    puller.holds.wake_group("G", "T", 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ((_, answer),) = puller.connection.answers
    assert outcome(answer) == (ResponseCode.PULL_OFFSET_MOVED, 0)
    assert puller.holds.held == 0


async def test_a_held_pull_that_the_client_gave_up_takes_no_reset_over(puller: Puller):
    """The client took the queue again meanwhile, and discards the answer to its first pull."""
    puller.subscribe()
    puller.put("a", "b")
    for _ in range(2):
        assert puller.pull(2, SUSPEND) is HELD
    puller.parts.offsets.assign_reset("G", "T", 0, 0)
    puller.holds.wake_group("G", "T", 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    moved = (ResponseCode.PULL_OFFSET_MOVED, 0)
    assert [outcome(answer) for _, answer in puller.connection.answers] == [moved, moved]
    assert not puller.parts.offsets.commit("G", "T", 0, 2)
    assert bodies(puller.pull(0, SUSPEND)) == [b"a", b"b"]
    assert puller.parts.offsets.commit("G", "T", 0, 1)


async def test_a_client_that_pulls_elsewhere_after_its_held_pull_was_redirected_is_redirected_again(puller: Puller):
    """The held pull was given up; the one that goes on has not been answered yet."""
    puller.subscribe()
    puller.put("a", "b", "c")
    assert puller.pull(3, SUSPEND) is HELD
    puller.parts.offsets.assign_reset("G", "T", 0, 1)
    puller.holds.wake_group("G", "T", 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert outcome(puller.pull(2, SUSPEND)) == (ResponseCode.PULL_OFFSET_MOVED, 1)
    assert bodies(puller.pull(1, SUSPEND)) == [b"b", b"c"]


def test_a_pull_of_a_stranger_commits_nothing_for_a_live_group(puller: Puller):
    puller.put("a", "b", "c")
    puller.subscribe()
    puller.pull(1, SUBSCRIPTION | COMMIT, commit_offset=1)
    member, puller.connection = puller.connection, FakeConnection("10.0.0.9:1", Audience.CLIENT)
    assert bodies(puller.pull(2, SUBSCRIPTION | COMMIT, commit_offset=3)) == [b"c"]
    assert puller.parts.offsets.query("G", "T", 0) == 1
    puller.parts.consumers.close_connection(member)
    puller.pull(2, SUBSCRIPTION | COMMIT, commit_offset=3)
    assert puller.parts.offsets.query("G", "T", 0) == 3


def test_a_pull_of_a_client_commits_nothing_for_a_group_of_the_broker(puller: Puller):
    puller.put("a")
    puller.connection = FakeConnection("10.0.0.9:1", Audience.CLIENT)
    group = "CID_RMQ_SYS_TRANS"
    assert bodies(puller.pull(0, SUBSCRIPTION | COMMIT, commit_offset=1, consumer_group=group)) == [b"a"]
    assert puller.parts.offsets.query(group, "T", 0) == -1


@pytest.mark.parametrize("flags", [0, SUBSCRIPTION])
def test_pulls_of_unregistered_consumers_are_rejected_where_they_may_not_pull(puller: Puller, flags: int):
    puller.put("a")
    apply_updates([puller.parts.config], {"rejectPullConsumerEnable": "true"})

    code, remark = puller.refused(flags=flags)
    assert (code, "rejectPullConsumerEnable is true" in remark) == (ResponseCode.SUBSCRIPTION_NOT_EXIST, True)
    assert bodies(puller.pull(consumer_group="TOOLS_CONSUMER")) == [b"a"]
    puller.subscribe()

    assert bodies(puller.pull(flags=flags)) == [b"a"]


def test_a_client_that_registered_before_may_pull_on(puller: Puller):
    puller.put("a")
    channel = ClientChannelInfo(puller.connection, "client", "JAVA", 513, puller.parts.clock.monotonic())
    puller.parts.consumers.register(channel, ConsumerData("G", ConsumeType.CONSUME_ACTIVELY))
    apply_updates([puller.parts.config], {"rejectPullConsumerEnable": "true"})

    assert bodies(puller.pull()) == [b"a"]
    puller.connection = FakeConnection()
    assert puller.refused()[0] == ResponseCode.SUBSCRIPTION_NOT_EXIST
