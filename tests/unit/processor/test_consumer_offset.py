import pytest

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.codec.remoting.bodies.client import ConsumerData, MessageModel
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.handler import Audience, Route
from rocketbroker.codec.remoting.headers.message import (
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import request, to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.consumer_offset import ConsumerOffsetRequests
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner
from tests.support.fakes import FakeConnection
from tests.support.golden_frames import answers_to
from tests.support.processor_calls import family


@pytest.fixture
def ask(parts, store):
    def ask(group, topic, queue_id, set_zero=None):
        header = QueryConsumerOffsetRequestHeader(group, topic, queue_id, set_zero)
        command = request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        answer = family(ConsumerOffsetRequests, parts, fetcher=store.fetcher).query_consumer_offset(
            FakeConnection(), command
        )
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


class Queues:
    """Queues that all have the same messages."""

    first = 5
    end = 100

    def min_offset_in_queue(self, _topic, _queue_id):
        return self.first

    def max_offset_in_queue(self, _topic, _queue_id):
        return self.end


def make(parts, offset_reset, store):
    return family(ConsumerOffsetRequests, parts, queues=store, reset=offset_reset)


@pytest.fixture
def processor(parts, offset_reset):
    parts.topic_configs.update(TopicConfig("T", 4, 4))
    parts.subscription_groups.find("g")
    return make(parts, offset_reset, Queues())


@pytest.fixture
def member(parts):
    """A consumer of group g."""
    connection = FakeConnection()
    channel = ClientChannelInfo(connection, "client", "JAVA", 513, parts.clock.monotonic())
    parts.consumers.register(channel, ConsumerData("g", message_model=MessageModel.CLUSTERING))
    return connection


def commit(processor, *fields, connection=None, oneway=False):
    command = request(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(*fields), oneway=oneway)
    return processor.update_consumer_offset(connection or FakeConnection(), command)


@pytest.mark.parametrize("offset", [0, 7, -1, 2**63 - 1])
@pytest.mark.parametrize("oneway", [True, False])
def test_commits_of_a_consumer_are_kept(processor, parts, member, offset, oneway):
    answer = commit(processor, "g", "T", 3, offset, connection=member, oneway=oneway)
    assert (answer.code, answer.remark, answer.header) == (0, None, {})
    assert parts.offsets.query("g", "T", 3) == offset


@pytest.mark.parametrize("offset", [-1, 0, 5, 100])
def test_administration_sets_the_offset_of_a_group_without_clients(processor, parts, offset):
    assert commit(processor, "g", "T", 3, offset).code == 0
    assert parts.offsets.query("g", "T", 3) == offset
    assert not parts.offsets.resets


@pytest.mark.proves("Consumers", "offsets cloned, for a running group as well")
def test_administration_moves_running_consumers(processor, parts, member):
    commit(processor, "g", "T", 3, 90, connection=member)
    assert commit(processor, "g", "T", 3, 42).remark is None
    later = commit(processor, "g", "T", 3, 91, connection=member)
    assert (later.code, later.remark) == (0, "Offset has been previously reset")
    assert parts.offsets.query("g", "T", 3) == 42
    assert parts.offsets.redirect("g", "T", 3, member) == 42
    assert parts.offsets.redirect("g", "T", 3, member) is None
    commit(processor, "g", "T", 3, 43, connection=member, oneway=True)
    assert parts.offsets.query("g", "T", 3) == 43


@pytest.mark.parametrize(
    ("model", "setting", "offset"),
    [
        (MessageModel.CLUSTERING, "true", -1),
        (MessageModel.CLUSTERING, "false", 42),
        (MessageModel.BROADCASTING, "true", 42),
    ],
)
def test_an_offset_set_by_administration_is_no_reset(processor, parts, member, model, setting, offset):
    apply_updates([parts.config], {"useServerSideResetOffset": setting})
    parts.consumers.group_info("g").message_model = model
    assert commit(processor, "g", "T", 3, offset).code == 0
    assert parts.offsets.query("g", "T", 3) == offset
    assert not parts.offsets.resets


def test_administration_cannot_commit_beyond_the_end(processor, parts):
    with pytest.raises(BrokerResponseError, match=r"Target offset 101 not in consume queue range \[5-100\]") as error:
        commit(processor, "g", "T", 3, 101)
    assert error.value.code == ResponseCode.SYSTEM_ERROR
    assert parts.offsets.table == {}


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        (("h", "T", 0, 1), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group h not exist!"),
        (("../g", "T", 0, 1), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group ../g not exist!"),
        (("g", "U", 0, 1), ResponseCode.TOPIC_NOT_EXIST, "Topic U not exist!"),
        (("g", "T", 4, 1), ResponseCode.INVALID_PARAMETER, "topic T has queues 0 to 3"),
        (("g", "T", -1, 1), ResponseCode.INVALID_PARAMETER, "topic T has queues 0 to 3"),
    ],
)
def test_a_missing_name_is_rejected(processor, parts, fields, code, remark):
    answer = commit(processor, *fields)
    assert answer.code == code
    assert remark in answer.remark
    assert parts.offsets.table == {}


def test_recorded_commits(parts, offset_reset):
    """Each recorded commit of each client, with the groups that the recorded broker knew."""
    processor = make(parts, offset_reset, Queues())
    route = Route(
        RequestCode.UPDATE_CONSUMER_OFFSET, processor.update_consumer_offset, UpdateConsumerOffsetRequestHeader
    )
    exchanges = answers_to(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert exchanges
    for exchange in exchanges:
        command = route.decode(int(exchange.request.binary), memoryview(exchange.request.header()))
        assert exchange.response is not None
        theirs = exchange.response.command()
        if theirs.code == 0:
            parts.subscription_groups.find(command.header.consumer_group)
            parts.topic_configs.update(TopicConfig(command.header.topic))
        ours = processor.update_consumer_offset(FakeConnection(), command)
        assert (ours.code, ours.remark, ours.header) == (theirs.code, theirs.remark, theirs.header or {})
        kept = parts.offsets.query(command.header.consumer_group, command.header.topic, command.header.queue_id)
        assert (kept == command.header.commit_offset) == (theirs.code == 0)


def test_a_group_that_has_pulled_is_created_by_its_first_offset(processor, parts):
    parts.subscription_groups.find_for_pull("new")
    assert commit(processor, "new", "U", 0, 1).code == ResponseCode.TOPIC_NOT_EXIST
    assert not parts.subscription_groups.contains("new")
    assert commit(processor, "new", "T", 0, 1).code == ResponseCode.SUCCESS
    assert parts.subscription_groups.contains("new")
    assert commit(processor, "never", "T", 0, 1).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_made_up_names_leave_no_offsets_behind(processor, parts):
    for number in range(100):
        commit(processor, f"made-up{number}", "T", 0, 1)
        commit(processor, "g", f"made-up{number}", 0, 1)
        commit(processor, "g", "T", 4 + number, 1)
    assert parts.offsets.table == {}


def client(address="10.0.0.9:1"):
    """A connection of a mere client."""
    return FakeConnection(address, Audience.CLIENT)


@pytest.mark.parametrize("oneway", [True, False])
def test_a_client_outside_a_live_group_moves_nothing(processor, parts, member, oneway):
    commit(processor, "g", "T", 3, 10, connection=member)
    with pytest.raises(BrokerResponseError, match=r"group g has clients, and 10\.0\.0\.9:1 is not") as error:
        commit(processor, "g", "T", 3, 100, connection=client(), oneway=oneway)
    assert error.value.code == ResponseCode.NO_PERMISSION
    assert parts.offsets.query("g", "T", 3) == 10
    assert not parts.offsets.resets


def test_another_connection_of_a_members_host_commits(processor, parts):
    """Java clients with a VIP channel, and those that have lost a connection."""
    member, other = client(), client("10.0.0.9:2")
    channel = ClientChannelInfo(member, "client", "JAVA", 513, parts.clock.monotonic())
    parts.consumers.register(channel, ConsumerData("g", message_model=MessageModel.CLUSTERING))
    for oneway, offset in ((True, 41), (False, 42)):
        assert commit(processor, "g", "T", 3, offset, connection=other, oneway=oneway).code == 0
        assert parts.offsets.query("g", "T", 3) == offset
    assert not parts.offsets.resets


def test_the_host_of_a_member_counts_for_as_long_as_its_heartbeat(processor, parts, member):
    gone = client()
    parts.consumers.register(ClientChannelInfo(gone, "gone", "JAVA", 513, parts.clock.monotonic()), ConsumerData("g"))
    parts.consumers.close_connection(gone)
    assert commit(processor, "g", "T", 3, 42, connection=gone).code == 0
    parts.clock.advance(121)
    with pytest.raises(BrokerResponseError, match="is not a member"):
        commit(processor, "g", "T", 3, 43, connection=gone)


@pytest.mark.parametrize("oneway", [True, False])
def test_a_client_commits_for_a_group_without_clients(processor, parts, oneway):
    assert commit(processor, "g", "T", 3, 42, connection=client(), oneway=oneway).code == 0
    assert parts.offsets.query("g", "T", 3) == 42


def test_a_broker_commits_for_a_live_group_and_resets_nothing(processor, parts, member):
    broker = FakeConnection("10.0.0.9:1", Audience.BROKER)
    for oneway in (True, False):
        assert commit(processor, "g", "T", 3, 42, connection=broker, oneway=oneway).code == 0
    assert parts.offsets.query("g", "T", 3) == 42
    assert not parts.offsets.resets


@pytest.mark.parametrize("oneway", [True, False])
@pytest.mark.parametrize("group", ["CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_OTHER"])
def test_a_client_commits_for_no_group_of_the_broker(processor, parts, group, oneway):
    parts.subscription_groups.find(group)
    with pytest.raises(BrokerResponseError, match=f"the consumer group {group} belongs to the broker") as error:
        commit(processor, group, "RMQ_SYS_TRANS_HALF_TOPIC", 0, 42, connection=client(), oneway=oneway)
    assert error.value.code == ResponseCode.NO_PERMISSION
    assert parts.offsets.table == {}
    # A slave returns the progress of its checks.
    broker = FakeConnection("10.0.0.9:1", Audience.BROKER)
    assert commit(processor, group, "RMQ_SYS_TRANS_HALF_TOPIC", 0, 42, connection=broker, oneway=True).code == 0
