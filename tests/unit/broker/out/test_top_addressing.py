import pytest

from rocketbroker.broker.out.top_addressing import TopAddressing, parse_addresses
from rocketbroker.common.config import BrokerConfig


def make(domain):
    return TopAddressing(BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", rmq_address_server_domain=domain))


def test_url():
    assert make("ns.example").url == "http://ns.example:8080/rocketmq/nsaddr"
    assert make("ns.example:80").url == "http://ns.example:80/rocketmq/nsaddr"


@pytest.mark.parametrize(
    ("answer", "addresses"),
    [
        (b"", []),
        (b" 10.0.0.1:9876 \n", ["10.0.0.1:9876"]),
        (b"a:1;b:65535;", ["a:1", "b:65535"]),
        (b"[::1]:9876", ["[::1]:9876"]),
    ],
)
def test_parse_addresses(answer, addresses):
    assert parse_addresses(answer) == addresses


@pytest.mark.parametrize(
    "answer", [b"<html>", b"a", b"a:", b":1", b"a:0", b"a:65536", b"a:1;b", b"a:\xb2", b"a:1234567890"]
)
def test_a_value_that_is_not_a_list_is_named(answer):
    with pytest.raises(ValueError, match="instead of host:port;host:port"):
        parse_addresses(answer)


async def test_failure_is_logged_once(caplog):
    addressing = make("127.0.0.1:1")
    assert await addressing.fetch() is None
    assert await addressing.fetch() is None
    assert caplog.text.count("address server http://127.0.0.1:1/rocketmq/nsaddr") == 1
