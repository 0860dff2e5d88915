"""The master of a pair is killed under a Java consumer, which goes on at the slave, and its progress comes back."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from itertools import pairwise

import pytest

from rocketbroker.codec.remoting.headers.message import GetMaxOffsetRequestHeader, QueryConsumerOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RemotingError
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.java import Java
from tests.support.java_lines import Got, got
from tests.support.our_servers import OurServer, OurServers, make_topic
from tests.support.ports import free_ports
from tests.support.waiting import until

pytestmark = pytest.mark.java

MESSAGES = 8_000
QUEUES = 4
# The route of a killed broker is gone at once. Clients ask for routes every 30 s, and repeat a failed pull after 3 s:
# they go on within 33 s, and the rest of the limit is for a busy machine.
LIMIT_S = 60


async def ends(broker: OurServer, code: RequestCode, header: Callable[[int], object]) -> int:
    """Return the sum of an offset over all queues of the topic, as a broker answers it."""
    client = RemotingClient()
    try:
        answers: list[Command] = [
            await client.invoke(broker.address, request(code, header(queue))) for queue in range(QUEUES)
        ]
    except RemotingError:
        return -1
    finally:
        await client.stop()
    return sum(int((answer.header or {}).get("offset", 0)) for answer in answers)


def wait_for(what: Callable[[], Awaitable[int]], value: int) -> None:
    async def wait() -> None:
        while await what() != value:  # noqa: ASYNC110 - another process knows
            await asyncio.sleep(0.2)

    asyncio.run(asyncio.wait_for(wait(), LIMIT_S))


def stored(broker: OurServer) -> Coroutine[None, None, int]:
    return ends(broker, RequestCode.GET_MAX_OFFSET, lambda queue: GetMaxOffsetRequestHeader("T", queue))


def consumed(broker: OurServer) -> Coroutine[None, None, int]:
    return ends(
        broker, RequestCode.QUERY_CONSUMER_OFFSET, lambda queue: QueryConsumerOffsetRequestHeader("G", "T", queue)
    )


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_consumers_go_on_at_the_slave_and_their_progress_returns(our_servers: OurServers, java: Java):
    namesrv = our_servers.namesrv()
    port = free_ports(-2, 1)
    store = our_servers.home / "master"
    settings: dict[str, str | int] = {"brokerIP2": our_servers.host}
    master = our_servers.launch_broker(namesrv.address, store, settings, port)
    master.wait_for("boot success")
    slave = our_servers.launch_broker(
        namesrv.address, None, {**settings, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": "true"}
    )
    slave.wait_for("boot success")
    make_topic(master.address, namesrv.address, "T", QUEUES)
    java.run("Produce", f"namesrv={namesrv.address}", "topic=T", f"plan=batch:{MESSAGES}:2")
    wait_for(lambda: stored(slave), MESSAGES)
    consumer = java.start(
        *("Push", f"namesrv={namesrv.address}", "topic=T", "group=G"),
        *("takeMillis=20", "persist=500"),
    )
    asyncio.run(until(lambda: len(got(consumer.text())) > MESSAGES // 16))

    master.kill()
    killed_ms = time.time() * 1000
    asyncio.run(until(lambda: len({each.n for each in got(consumer.text())}) == MESSAGES))
    gone_on_s = (end_of_longest_pause_ms(got(consumer.text()), killed_ms) - killed_ms) / 1000
    print(f"the consumer went on {gone_on_s:.1f} s after the master was killed")
    assert gone_on_s < LIMIT_S
    wait_for(lambda: consumed(slave), MESSAGES)
    consumer.kill()
    master = our_servers.launch_broker(namesrv.address, store, settings, port)
    master.wait_for("boot success")

    wait_for(lambda: consumed(master), MESSAGES)


def end_of_longest_pause_ms(messages: list[Got], begin_ms: float) -> float:
    """Return when the consumer got its first message from the slave: those that it had pulled before come at once."""
    times = [begin_ms, *sorted(each.received for each in messages if each.received > begin_ms)]
    return max(pairwise(times), key=lambda pair: pair[1] - pair[0])[1]
