import pytest

from rocketbroker.analytics.spark.offset_options import Bound, Subscription
from rocketbroker.analytics.spark.pull_options import PULL_OPTIONS, batch_options, stream_options
from rocketbroker.analytics.spark.read_options import TriggerLimits
from rocketbroker.common.errors import ConfigError

NEEDED = {"namesrvaddr": "ns:9876", "subscribe": "A, B"}


def test_what_holds_when_nothing_is_said():
    options = batch_options(NEEDED)
    assert (options.access.namesrv_addr, options.subscription) == ("ns:9876", Subscription(frozenset("AB")))
    assert (options.starts.of("b", "A", 0), options.ends.of("b", "A", 0)) == (Bound(-2), Bound(-1))
    assert options.limits == TriggerLimits(None, None, None, 900)
    assert (options.min_partitions, options.fail_on_data_loss, options.properties) == (1, True, None)
    assert options.consumer_group == "spark_source"


def test_each_option_in_any_case():
    of_streams = {"MAXOFFSETSPERTRIGGER": "90", "minoffsetspertrigger": "9", "maxTriggerDelay": "2m"}
    of_batches = {"endingTimestamp": "7"}
    of_both = {
        "namesrvAddr": "a:1;b:1",
        "subscribePattern": "A.*",
        "startingOffsets": '{"b": {"A": {"0": 5}}}',
        "minPartitions": "8",
        "failOnDataLoss": "FALSE",
        "includeProperties": "KEYS, color",
        "consumerGroup": "G",
        "accessKey": "user",
        "secretKey": "secret",
        "securityToken": "token",
        "tls": "TRUE",
        "tlsCaFile": "ca.pem",
    }
    streamed, batch = stream_options(of_both | of_streams), batch_options(of_both | of_batches)
    assert streamed.limits == TriggerLimits(90, None, 9, 120)
    assert (batch.ends.of("b", "A", 0), batch.starts.of("b", "A", 0)) == (Bound(-1, 7), Bound(5))
    assert (batch.subscription.pattern, batch.min_partitions, batch.fail_on_data_loss) == ("A.*", 8, False)
    assert (batch.properties, batch.consumer_group) == (frozenset({"KEYS", "color"}), "G")
    tried = {name.lower() for name in of_streams | of_batches | of_both}
    assert tried | {"subscribe", "startingtimestamp", "endingoffsets"} == {name.lower() for name in PULL_OPTIONS}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "A"}, r'format\("rocketmq"\) needs the option namesrvAddr \(name servers'),
        ({"namesrvAddr": "ns:9876"}, r"needs the option subscribe \(.*\) or subscribePattern \("),
        ({**NEEDED, "assign": "x"}, "no option .assign.: name the topics by subscribe"),
        ({**NEEDED, "topic": "x"}, "has no option 'topic'; its options are namesrvAddr"),
        ({**NEEDED, "consumerGroup": "a b"}, "consumerGroup is 'a b': .*illegal characters"),
        ({**NEEDED, "maxOffsetsPerTrigger": "1"}, "maxOffsetsPerTrigger is '1': it is for readStream; limit a batch"),
        ({**NEEDED, "startingOffsets": '{"a": {"T": {"0": -1}}}'}, "latest is for readStream"),
        ({**NEEDED, "startingTimestamp": "9", "endingTimestamp": "8"}, "is 9, not before endingTimestamp, 8"),
        ({**NEEDED, "includeProperties": ""}, "includeProperties names no property"),
    ],
)
def test_wrong_options_of_a_batch_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        batch_options(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is 'latest': a stream has no end"),
        ({"maxTriggerDelay": "1h"}, "maxTriggerDelay has no effect without minOffsetsPerTrigger"),
    ],
)
def test_wrong_options_of_a_stream_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        stream_options(NEEDED | options)
