import pytest

from rocketbroker.analytics.spark.cluster_access import ClusterAccess
from rocketbroker.analytics.spark.sink_options import SINK_OPTIONS, SinkOptions, sink_options
from rocketbroker.client.core.client_config import SessionCredentials
from rocketbroker.common.errors import ConfigError

NAMESRV = {"namesrvAddr": "ns1:9876;ns2:9876"}


def test_what_holds_when_nothing_is_said():
    assert sink_options(NAMESRV) == SinkOptions(
        ClusterAccess("ns1:9876;ns2:9876"), None, "spark_sink", 3.0, 10, 0, 16 << 20
    )


def test_each_option_in_any_case():
    given = {
        "NAMESRVADDR": "ns:9876",
        "Topic": "Orders",
        "producergroup": "g",
        "sendTimeoutMs": "500",
        "retryTimes": "0",
        "maxMessagesPerSecondPerTask": "20",
        "maxinflightbytes": "1m",
        "accesskey": "user",
        "secretKey": "secret",
        "securitytoken": "token",
        "TLS": "true",
        "tlscafile": "ca.pem",
    }
    access = ClusterAccess("ns:9876", SessionCredentials("user", "secret", "token"), True, "ca.pem")
    assert sink_options(given) == SinkOptions(access, "Orders", "g", 0.5, 0, 20, 1 << 20)
    assert {name.lower() for name in given} == {name.lower() for name in SINK_OPTIONS}


def test_name_and_checkpoint_of_a_stream_are_no_options_of_ours():
    of_spark = {"checkpointlocation": "/data/checkpoint", "queryname": "copy"}
    assert sink_options({**NAMESRV, **of_spark}) == sink_options(NAMESRV)


@pytest.mark.parametrize("url", ["http://host:8080/rocketmq/nsaddr", " https://host/nsaddr"])
def test_an_address_server_is_taken_as_the_client_takes_it(url: str):
    assert sink_options({"namesrvAddr": url}).access.namesrv_addr == url.strip()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"namesrvAddr": ""}, r'format\("rocketmq"\) needs the option namesrvAddr: name servers, host:port joined'),
        ({"namesrvAddr": "ns"}, "name server address: "),
        ({"path": "x"}, "has no option 'path'; its options are namesrvAddr, topic"),
        ({"topic": "a b"}, "topic is 'a b': "),
        ({"topic": ""}, "topic is '': "),
        ({"producerGroup": "g*"}, r"producerGroup is 'g\*': "),
        ({"sendTimeoutMs": "0"}, "sendTimeoutMs is '0'; give a number above 0"),
        ({"retryTimes": "-1"}, "retryTimes is '-1'; give a number "),
        ({"maxMessagesPerSecondPerTask": "0"}, "maxMessagesPerSecondPerTask is '0'; give a number above 0"),
        ({"maxInFlightBytes": "1x"}, r"maxInFlightBytes is '1x'; give a number above 0 \(most bytes"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], message: str):
    with pytest.raises(ConfigError, match=message):
        sink_options({**NAMESRV, **options})
