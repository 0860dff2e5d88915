import pytest

from rocketbroker.analytics.spark.kafka_options import instead_of


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("ASSIGN", "name the topics by subscribe, and queues by startingOffsets and endingOffsets"),
        ("startingOffsetsByTimestamp", "give startingTimestamp, as JSON by topic if topics differ"),
        ("kafka.group.id", "a query needs no consumer group, since its checkpoint has the offsets"),
        ("kafka.bootstrap.servers", "it configures a Kafka client"),
        ("fetchOffset.numRetries", "it configures a Kafka client"),
        ("subscribe", ""),
        ("kafkaesque", ""),
    ],
)
def test_what_to_use_instead(name: str, instead: str):
    assert instead_of(name) == instead
