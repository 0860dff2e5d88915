from pathlib import Path

from rocketbroker.broker.filter.consumer_filter_manager import ConsumerFilterManager
from rocketbroker.broker.filter.retry_message_filter import RetryMessageFilter
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.message.record_properties import PropertyBlocks
from rocketbroker.codec.remoting.bodies.heartbeat import SubscriptionData
from rocketbroker.common.config import BrokerConfig
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
