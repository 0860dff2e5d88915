"""Filters of groups over their clients' lives, and their file, compared with one that Apache's broker 5.5.0 wrote."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketbroker.broker.consumer_filter_manager import ConsumerFilterManager, RetryMessageFilter, filter_of
from rocketbroker.broker.persist.config_manager import AnyConfigManager
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.message.raw_records import PropertyBlocks
from rocketbroker.codec.remoting.bodies.client import SubscriptionData
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import MQFilterError
from tests.support.fakes import FakeClock


def test_a_retry_is_filtered_as_the_topic_it_comes_from(tmp_path: Path):
    filters = ConsumerFilterManager(tmp_path / "f.json", BrokerConfig(enable_property_filter=True), FakeClock())
    filters.register("G", [SubscriptionData("T", "a > 1", 1, expression_type="SQL92")])
    retries = [
        {"RETRY_TOPIC": "T", "a": "2"},
        {"RETRY_TOPIC": "T", "a": "1"},
        {"RETRY_TOPIC": "U", "a": "1"},
        {"a": "1"},
    ]

    blocks = PropertyBlocks.of([encode_properties(each) for each in retries])
    matched = RetryMessageFilter(filters, "G").is_matched_by_commit_log(blocks)

    assert matched == [True, False, True, True], "without a filter all are wanted"


DAY_S = 86_400
# Written by Apache's broker for two Java consumers that were gone by then.
RECORDED = """{
	"filterDataByTopic":{
		"T":{
			"groupFilterData":{
				"CG_Other":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[75,18,80]
					},
					"bornTime":1795308795500,
					"clientVersion":1795308796060,
					"consumerGroup":"CG_Other",
					"dead":true,
					"deadTime":1795308809037,
					"expression":"n BETWEEN 3 AND 5",
					"expressionType":"SQL92",
					"topic":"T"
				},
				"CG_Sql":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[1,61,19]
					},
					"bornTime":1795308789076,
					"clientVersion":1795308791420,
					"consumerGroup":"CG_Sql",
					"dead":true,
					"deadTime":1795308807944,
					"expression":"n > 30 AND text CONTAINS \'é\'",
					"expressionType":"SQL92",
					"topic":"T"
				}
			},
			"topic":"T"
		}
	}
}""".encode()


@pytest.fixture
def broker(tmp_path: Path) -> SimpleNamespace:
    """A manager, its clock, and how often it was to be written."""
    clock = FakeClock()
    config = BrokerConfig(enable_property_filter=True)
    persisted: list[AnyConfigManager] = []
    path = tmp_path / "consumerFilter.json"
    filters = ConsumerFilterManager(path, config, clock, persisted.append)
    return SimpleNamespace(clock=clock, config=config, persisted=persisted, filters=filters, path=path)


def sql(expression: str, version: int = 1, topic: str = "T", expression_type: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic, expression, version, expression_type=expression_type)


def matches(broker: SimpleNamespace, topic: str = "T", group: str = "G", **properties: str) -> bool:
    found = broker.filters.get(topic, group)
    matched: bool = found.message_filter.is_matched_by_commit_log(PropertyBlocks.of([encode_properties(properties)]))[0]
    return matched


def test_heartbeats_register_clients_and_subscriptions(broker: SimpleNamespace):
    broker.filters.register("G", [sql("a > 1"), sql("a", topic="U", expression_type="TAG"), sql("b = 1", topic="V")])
    assert broker.filters.get("U", "G") is None
    assert broker.filters.get("T", "H") is None
    assert matches(broker, a="2")
    assert not matches(broker, a="1")
    assert matches(broker, "V", b="1")
    assert len(broker.persisted) == 1


def test_a_heartbeat_with_nothing_new_writes_nothing(broker: SimpleNamespace):
    for _ in range(3):
        broker.filters.register("G", [sql("a > 1")])
    assert len(broker.persisted) == 1


def test_the_newer_version_counts(broker: SimpleNamespace):
    broker.filters.register("G", [sql("a > 1", 5)])
    broker.filters.register("G", [sql("a > 2", 4)])
    assert matches(broker, a="2")
    broker.filters.register("G", [sql("a > 2", 5)])
    assert matches(broker, a="2"), "of one version the first counts"
    broker.filters.register("G", [sql("a > 2", 6)])
    assert not matches(broker, a="2")
    assert broker.filters.get("T", "G").client_version == 6
    before = broker.filters.get("T", "G").message_filter
    broker.filters.register("G", [sql("a > 2", 7)])
    assert broker.filters.get("T", "G").client_version == 7
    assert broker.filters.get("T", "G").message_filter is before


def test_a_wrong_expression_ends_the_one_before(broker: SimpleNamespace, caplog: pytest.LogCaptureFixture):
    broker.filters.register("G", [sql("a > 1", 1)])
    broker.filters.register("G", [sql("a between 10,20", 2), sql("b = 1", 2, "V")])
    assert broker.filters.get("T", "G") is None
    assert broker.filters.get("V", "G") is not None
    assert "consumer group G: its filter for topic T is rejected" in caplog.text
    assert "At character 13: ',' is not allowed here" in caplog.text
    broker.filters.register("G", [sql("a between 10 and 20", 3), sql("b = 1", 2, "V")])
    assert matches(broker, a="15")


def test_an_unknown_type_is_no_filter(broker: SimpleNamespace):
    broker.filters.register("G", [sql("a > 1", expression_type="SQL99")])
    assert broker.filters.get("T", "G") is None
    with pytest.raises(MQFilterError, match="'SQL99' is unknown; use TAG or SQL92"):
        filter_of("SQL99", "a > 1")


def test_nothing_is_registered_while_it_is_off(broker: SimpleNamespace):
    off = ConsumerFilterManager(broker.path, BrokerConfig(), broker.clock, broker.persisted.append)
    off.register("G", [sql("a > 1")])
    assert off.get("T", "G") is None
    assert broker.persisted == []


def test_a_filter_dies_with_its_clients_and_comes_back_with_them(broker: SimpleNamespace):
    broker.filters.register("G", [sql("a > 1", 5)])
    broker.clock.advance(10)
    broker.filters.unregister("G")
    data = broker.filters.get("T", "G").data
    assert (data.dead, data.dead_time) == (True, broker.clock.time_ms())
    broker.filters.unregister("G")
    assert len(broker.persisted) == 2
    broker.filters.register("G", [sql("a > 1", 5)])
    assert (data.dead, data.dead_time) == (False, 0)
    assert len(broker.persisted) == 3


def test_a_filter_dies_when_its_topic_is_no_longer_subscribed_to(broker: SimpleNamespace):
    broker.filters.register("G", [sql("a > 1"), sql("b > 1", topic="U")])
    broker.filters.register("G", [sql("a > 1")])
    assert broker.filters.get("U", "G").data.dead
    assert not broker.filters.get("T", "G").data.dead


def test_the_dead_are_forgotten_in_time(broker: SimpleNamespace):
    broker.filters.register("G", [sql("a > 1")])
    broker.filters.register("H", [sql("a > 1")])
    broker.filters.unregister("G")
    broker.clock.advance(DAY_S - 1)
    broker.filters.encode()
    assert broker.filters.get("T", "G") is not None
    broker.clock.advance(1)
    broker.filters.encode()
    assert broker.filters.get("T", "G") is None
    assert broker.filters.get("T", "H") is not None


def test_the_file_is_read_back(broker: SimpleNamespace):
    broker.filters.register("G", [sql("a > 1 AND b = 'é'", 7), sql("c = 1", 7, "U")])
    broker.filters.register("H", [sql("a > 2", 8)])
    broker.path.write_bytes(broker.filters.encode())
    broker.clock.advance(100)
    again = ConsumerFilterManager(broker.path, broker.config, broker.clock, broker.persisted.append)
    assert again.load()
    assert again.count(again.parse(broker.filters.encode())) == 3
    for topic, group, version in (("T", "G", 7), ("U", "G", 7), ("T", "H", 8)):
        found = again.get(topic, group)
        assert found is not None
        assert found.client_version == version
        assert (found.data.dead, found.data.dead_time) == (True, broker.clock.time_ms() - 30_000)
    again.register("G", [sql("a > 1 AND b = 'é'", 7)])
    found = again.get("T", "G")
    assert found is not None
    assert not found.data.dead


def test_a_filter_in_the_file_that_is_wrong_is_skipped(broker: SimpleNamespace, caplog: pytest.LogCaptureFixture):
    broker.filters.register("G", [sql("a > 1")])
    broker.filters.register("H", [sql("a > 2")])
    broker.filters.decode(broker.filters.encode().replace(b"a > 1", b"a LIKE 1"))
    assert broker.filters.get("T", "G") is None
    assert broker.filters.get("T", "H") is not None
    assert "the filter of group G is invalid and ignored" in caplog.text


@pytest.mark.proves("Filters", "`consumerFilter.json`, byte for byte as Apache's broker writes it")
def test_the_file_is_that_of_apache_s_broker(tmp_path: Path):
    clock = FakeClock(1795308809037 + 1000)
    filters = ConsumerFilterManager(tmp_path / "consumerFilter.json", BrokerConfig(enable_property_filter=True), clock)
    filters.decode(RECORDED)
    assert filters.encode() == RECORDED
    found = filters.get("T", "CG_Sql")
    assert found is not None
    raws = [encode_properties({"n": n, "text": "é"}) for n in ("30", "31")]
    assert found.message_filter.is_matched_by_commit_log(PropertyBlocks.of(raws)) == [False, True]


@pytest.mark.parametrize("contents", [b"", b"{", b"[]", b"{}", b'{"filterDataByTopic":{"T":{"groupFilterData":[]}}}'])
def test_a_damaged_file_ends_no_start(broker: SimpleNamespace, contents: bytes, caplog: pytest.LogCaptureFixture):
    broker.path.write_bytes(contents)
    assert not broker.filters.load()
    assert "consumerFilter.json is unreadable and ignored; clients register their filters again" in caplog.text
    broker.filters.register("G", [sql("a > 1")])
    broker.path.write_bytes(broker.filters.encode())
    assert broker.filters.load()


def test_without_a_file_there_is_nothing(broker: SimpleNamespace, caplog: pytest.LogCaptureFixture):
    assert not broker.filters.load()
    assert (caplog.text, broker.filters.found) == ("", False)


def test_nothing_to_write_is_a_file_too(broker: SimpleNamespace):
    assert broker.filters.encode() == b'{\n\t"filterDataByTopic":{}\n}'
    broker.filters.decode(broker.filters.encode())


def test_the_runtime_info_has_rocketmqs_keys(broker: SimpleNamespace, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        broker.filters.register("G", [sql("a > 1")])
    assert "group G filters topic T by 'a > 1'" in caplog.text


def test_filters_beyond_the_limit_take_the_place_of_dead_ones(tmp_path, caplog):
    config = BrokerConfig(enable_property_filter=True, max_consumer_filter_nums=100)
    manager = ConsumerFilterManager(tmp_path / "consumerFilter.json", config, FakeClock())

    def register(group, *topics):
        manager.register(group, [SubscriptionData(topic, "a > 1", 1, expression_type="SQL92") for topic in topics])

    for number in range(1_000):
        register("restless", *(f"T{number}-{topic}" for topic in range(10)))
    assert sum(map(len, manager._by_group.values())) <= 100
    register("live", *(f"T{topic}" for topic in range(120)))
    assert sum(map(len, manager._by_group.values())) == 100
    assert "maxConsumerFilterNums" in caplog.text
    register("other", "T")
    assert manager.get("T", "other") is None
    manager.unregister("live")
    register("other", "T")
    assert manager.get("T", "other") is not None

    loaded = ConsumerFilterManager(tmp_path / "consumerFilter.json", config, FakeClock())
    loaded.decode(manager.encode())
    assert loaded._count == sum(map(len, loaded._by_group.values()))
