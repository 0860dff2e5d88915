from rocketbroker.broker.out.top_addressing import TopAddressing
from rocketbroker.common.config import BrokerConfig


def make(domain):
    return TopAddressing(BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", rmq_address_server_domain=domain))


def test_url():
    assert make("ns.example").url == "http://ns.example:8080/rocketmq/nsaddr"
    assert make("ns.example:80").url == "http://ns.example:80/rocketmq/nsaddr"


async def test_failure_is_logged_once(caplog):
    addressing = make("127.0.0.1:1")
    assert await addressing.fetch() is None
    assert await addressing.fetch() is None
    assert caplog.text.count("address server http://127.0.0.1:1/rocketmq/nsaddr") == 1
