import pytest

from rocketbroker.analytics.spark.kafka_options import refuse_kafka_options
from rocketbroker.common.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("assign", "name the topics by subscribe"),
        ("includeheaders", "the column properties has them"),
        ("startingOffsetsByTimestamp", "give startingTimestamp"),
        ("kafka.bootstrap.servers", "namesrvAddr names the cluster"),
    ],
)
def test_an_option_of_kafka_is_refused_by_name(name: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=rf'format\("f"\) has no option {name}, which is one of Kafka: .*{instead}'):
        refuse_kafka_options("f", ["subscribe", name])


def test_other_options_are_left_to_the_format() -> None:
    refuse_kafka_options("f", ["subscribe", "kafkaesque"])
