"""A broker that stops sends Java clients to the other broker, and no send fails."""

import re

import pytest

from tests.support.java import Java
from tests.support.our_servers import OurServers, make_topic

pytestmark = pytest.mark.java

MESSAGES = 800


@pytest.mark.timeout(300)
def test_a_producer_goes_on_at_the_other_broker_without_an_error(our_servers: OurServers, java: Java):
    namesrv = our_servers.namesrv()
    leaving = our_servers.broker(
        namesrv.address, brokerName="broker-a", enableShutdownGracefully="true", shutdownWaitTimeSeconds=4
    )
    staying = our_servers.broker(namesrv.address, brokerName="broker-b")
    for broker in (leaving, staying):
        make_topic(broker.address, namesrv.address, "T", 2)
    plan = f"plan=sync:{MESSAGES}:1"
    producer = java.start("Produce", f"namesrv={namesrv.address}", "topic=T", plan, "pauseMillis=10")
    producer.wait_for("SENT\t100\t")

    leaving.process.terminate()
    assert leaving.wait() == 0
    producer.wait_for("DONE")

    sent = re.findall(r"^SENT\t(\d+)\t", producer.text(), re.MULTILINE)
    assert sent == [str(number) for number in range(MESSAGES)]
    assert "Exception" not in producer.text()
    answered = re.search(r"(\d+) requests were answered GO_AWAY", leaving.text())
    assert answered is not None
    assert int(answered[1]) > 0
