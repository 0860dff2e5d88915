import json

import msgspec
import pytest

from rocketbroker.broker.persist.config_manager import ConfigManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, ConfigError
from tests.support.fakes import FakeClock
from tests.support.golden_store import files

GOLDEN = files("clean")["config/topics.json"]


def make(tmp_path, **settings):
    config = BrokerConfig(
        broker_cluster_name="GoldenCluster", broker_name="broker-g", broker_ip1="127.0.0.1", **settings
    )
    return TopicConfigManager(tmp_path / "topics.json", config, FakeClock())


def listen(manager):
    changes: list[list[TopicConfig]] = []

    def listener(change):
        changes.append(change.topics)
        return []

    manager.on_change(listener)
    return changes


def test_system_topics_are_those_of_the_recorded_broker(tmp_path):
    recorded = make(tmp_path)
    recorded.topics.clear()
    recorded.decode(GOLDEN)
    manager = make(tmp_path)
    for name, topic in manager.topics.items():
        assert recorded.topics[name] == topic
    clients_topics = {name for name in recorded.topics if name.startswith(("St", "%"))}
    assert recorded.topics.keys() - clients_topics == manager.topics.keys() == manager.system_topics


def test_settings_change_the_system_topics(tmp_path):
    manager = make(
        tmp_path,
        auto_create_topic_enable=False,
        trace_topic_enable=True,
        cluster_topic_enable=False,
        broker_topic_enable=False,
    )
    assert manager.select("TBW102") is None
    assert manager.select("RMQ_SYS_TRACE_TOPIC").write_queue_nums == 1
    assert manager.select("GoldenCluster").perm == manager.select("broker-g").perm == 1


def test_recorded_file_encodes_back_to_the_same_bytes(tmp_path):
    manager = make(tmp_path)
    manager.topics.clear()
    manager.decode(GOLDEN)
    assert manager.encode() == GOLDEN


def test_auto_create_inherits_from_tbw102(tmp_path):
    manager = make(tmp_path)
    changes = listen(manager)
    counter = manager.data_version.counter
    topic = manager.create_in_send_message("New", "TBW102", "127.0.0.1:1", 4, 2)
    assert topic == TopicConfig("New", 4, 4, 6, topic_sys_flag=2)
    assert changes == [[topic]]
    assert manager.data_version.counter == counter + 1
    assert manager.create_in_send_message("New", "TBW102", "127.0.0.1:1", 9, 0) is topic
    assert manager.create_in_send_message("Wide", "TBW102", "127.0.0.1:1", 99, 0).read_queue_nums == 8
    assert len(changes) == 2


@pytest.mark.parametrize("queue_nums", [0, -1, -(2**31)])
def test_no_topic_without_queues_is_created(tmp_path, queue_nums):
    manager = make(tmp_path)
    with pytest.raises(BrokerResponseError, match="defaultTopicQueueNums: topic orders would have") as error:
        manager.create_in_send_message("orders", "TBW102", "127.0.0.1:1", queue_nums, 0)
    assert error.value.code == ResponseCode.INVALID_PARAMETER
    assert manager.select("orders") is None
    assert manager.create_in_send_message("orders", "TBW102", "127.0.0.1:1", 2**31 - 1, 0).write_queue_nums == 8


def test_no_topic_without_permissions_is_created(tmp_path):
    """The topic that brokers of a name share may be inherited, but has no other permission."""
    manager = make(tmp_path)
    template = next(name for name in manager.topics if name.startswith("rmq_sys_SYNC_BROKER_MEMBER_"))
    assert manager.create_in_send_message("orders", template, "127.0.0.1:1", 4, 0) is None
    assert manager.select("orders") is None


def test_names_like_those_of_system_topics_count(tmp_path):
    manager = make(tmp_path, max_auto_create_topic_nums=100)
    for number in range(100 - len(manager.topics)):
        manager.create_in_send_message(f"rmq_sys_{number}", "TBW102", "10.0.0.9:1", 4, 0)
    with pytest.raises(BrokerResponseError, match="maxAutoCreateTopicNums") as error:
        manager.create_in_send_message("rmq_sys_more", "TBW102", "10.0.0.9:1", 4, 0)
    assert error.value.code == ResponseCode.TOPIC_NOT_EXIST
    assert len(manager.topics) == 100
    assert manager.create_in_send_message("RMQ_SYS_TRACE_TOPIC", "TBW102", "10.0.0.9:1", 4, 0) is not None


def test_an_address_leaves_topics_to_the_next(tmp_path):
    manager = make(tmp_path, max_auto_create_topic_nums=100)
    half = (101 - len(manager.topics)) // 2
    for number in range(half):
        manager.create_in_send_message(f"T{number}", "TBW102", "10.0.0.9:1", 4, 0, b"a")
    with pytest.raises(BrokerResponseError, match="maxAutoCreateTopicNums"):
        manager.create_in_send_message("more", "TBW102", "10.0.0.9:1", 4, 0, b"a")
    assert len(manager.topics) in {100 - half, 101 - half}
    assert not manager.may_create("orders", b"a")
    assert manager.may_create("orders", b"b")
    assert manager.create_in_send_message("orders", "TBW102", "10.0.0.8:1", 4, 0, b"b") is not None
    assert manager.create_in_send_message_back("%RETRY%g", 1, 6, share=b"b") is not None


@pytest.mark.parametrize("default_topic", ["Missing", "SELF_TEST_TOPIC", ""])
def test_auto_create_needs_a_topic_that_may_be_inherited(tmp_path, default_topic):
    manager = make(tmp_path)
    assert manager.create_in_send_message("New", default_topic, "127.0.0.1:1", 4, 0) is None
    assert "New" not in manager.topics


def test_auto_create_can_be_off_even_when_the_file_has_tbw102(tmp_path):
    write = make(tmp_path)
    (tmp_path / "topics.json").write_bytes(write.encode())
    manager = make(tmp_path, auto_create_topic_enable=False)
    assert manager.load()
    assert manager.create_in_send_message("New", "TBW102", "127.0.0.1:1", 4, 0) is None


def test_create_in_send_message_back(tmp_path):
    manager = make(tmp_path)
    changes = listen(manager)
    topic = manager.create_in_send_message_back("%RETRY%g", 1, 6)
    assert topic == TopicConfig("%RETRY%g", 1, 1, 6)
    assert manager.create_in_send_message_back("%RETRY%g", 1, 6) is topic
    assert manager.create_in_send_message_back("%RETRY%g", 1, 6, order=True).order
    assert manager.is_order_topic("%RETRY%g")
    assert len(changes) == 2


def test_update_alters_attributes(tmp_path):
    manager = make(tmp_path)
    manager.update(TopicConfig("T", attributes={"+queue.type": "SimpleCQ", "+message.type": "FIFO"}))
    assert manager.select("T").attributes == {"queue.type": "SimpleCQ", "message.type": "FIFO"}
    manager.update(TopicConfig("T", 2, 2, attributes={"+message.type": "NORMAL"}))
    assert manager.select("T").attributes == {"queue.type": "SimpleCQ", "message.type": "NORMAL"}
    manager.update(TopicConfig("T", 2, 2, attributes={"-message.type": ""}))
    assert manager.select("T").attributes == {"queue.type": "SimpleCQ"}


@pytest.mark.parametrize(
    ("existing", "changes", "remark"),
    [
        (False, {"queue.type": "BatchCQ"}, "only add attribute is supported while creating topic"),
        (False, {"-queue.type": ""}, "only add attribute is supported while creating topic"),
        (False, {"+no.such": "x"}, "unsupported key: no.such"),
        (False, {"+queue.type": "Fast"}, "queue.type=Fast; use BatchCQ or SimpleCQ"),
        (
            False,
            {"+cleanup.policy": "COMPACTION"},
            "cleanup.policy=COMPACTION is not supported by this broker; use DELETE",
        ),
        (False, {"+": "x"}, "kv string format wrong"),
        (False, {"++queue.type": "BatchCQ"}, "kv string format wrong"),
        (True, {"+queue.type": "BatchCQ"}, "attempt to update an unchangeable attribute"),
        (True, {"-queue.type": ""}, "attempt to delete a nonexistent key"),
        (True, {"*queue.type": ""}, "wrong format key"),
        (True, {"+message.type": "FIFO", "-message.type": ""}, "alter duplication key"),
    ],
)
def test_wrong_attributes_are_rejected_and_change_nothing(tmp_path, existing, changes, remark):
    manager = make(tmp_path)
    if existing:
        manager.update(TopicConfig("T"))
    before = manager.encode()
    with pytest.raises(BrokerResponseError, match=remark):
        manager.update(TopicConfig("T", 3, 3, attributes=changes))
    assert manager.encode() == before


def test_delete(tmp_path):
    manager = make(tmp_path)
    manager.update(TopicConfig("T"))
    assert manager.delete("T")
    assert not manager.delete("T")
    assert manager.select("T") is None


def test_round_trip_and_persist(tmp_path):
    submitted: list[ConfigManager] = []
    config = BrokerConfig(broker_name="b", broker_ip1="127.0.0.1")
    manager = TopicConfigManager(tmp_path / "topics.json", config, FakeClock(), submitted.append)
    manager.update(TopicConfig("T", 3, 2, 4, order=True))
    assert submitted == [manager]
    manager.path.write_bytes(manager.encode())
    loaded = TopicConfigManager(tmp_path / "topics.json", config, FakeClock(0))
    assert loaded.load()
    assert loaded.topics == manager.topics
    assert loaded.data_version == manager.data_version


@pytest.mark.parametrize(
    "content",
    [b"[]", b'{"topicConfigTable":[]}', b'{"topicConfigTable":{"T":{"perm":"six"}}}', b'{"topicConfigTable":{"T":7}}'],
)
def test_file_that_is_no_topic_table(tmp_path, content):
    manager = make(tmp_path)
    before = msgspec.structs.replace(manager.data_version), dict(manager.topics)
    manager.path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"topics\.json is damaged"):
        manager.load()
    assert (manager.data_version, manager.topics) == before


def test_file_is_readable_by_standard_tools(tmp_path):
    table = json.loads(make(tmp_path).encode())
    assert table["topicConfigTable"]["TBW102"]["perm"] == 7


def test_topics_that_a_taken_over_store_has_are_loaded_whatever_their_attributes(tmp_path):
    store = make(tmp_path)
    store.topics["B"] = TopicConfig("B", attributes={"queue.type": "BatchCQ", "cleanup.policy": "COMPACTION"})
    (tmp_path / "topics.json").write_bytes(store.encode())
    loaded = make(tmp_path)
    assert loaded.load()
    assert loaded.select("B") == store.topics["B"]
