"""Order by sharding key: orderly Java consumers of which one is killed, and topics whose queues stay what they are."""

import asyncio
from collections.abc import Callable

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from tests.support.clocked_broker import clocked_broker
from tests.support.java import Java
from tests.support.java_lines import Got, check_content, check_places
from tests.support.java_scenario import Scenario
from tests.support.our_servers import OurServers, make_topic
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.java

QUEUES = range(4)
KEYS = 8  # two in each queue
UPDATE_BROKER_CONFIG = 25
LOCK_S = 60  # REBALANCE_LOCK_MAX_LIVE_TIME


def offsets(messages: list[Got], queue_id: int) -> list[int]:
    return [each.queue_offset for each in messages if each.queue_id == queue_id]


@pytest.mark.proves("Order", "LOCK_BATCH_MQ, UNLOCK_BATCH_MQ; a lock that is not renewed ends after 60 s")
@pytest.mark.proves("Order", "take-over from a consumer that was killed, in order, once its locks are over")
def test_order_is_kept_when_the_locks_of_a_killed_consumer_expire(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv().address
    broker = clocked_broker(our_servers, namesrv)
    make_topic(broker.address, namesrv, "Order", len(QUEUES))
    orderly = {"group": "G", "topic": "Order", "listener": "orderly"}
    victim, heir = Scenario(java, namesrv), Scenario(java, namesrv)
    victim.do("consume", name="c", **orderly)
    heir.do("consume", name="c", **orderly)
    # Messages of both, until the queues are shared.
    sent = 0

    def is_in_the_last(count: int) -> Callable[[list[Got]], bool]:
        first = sent - count
        return lambda messages: any(each.n >= first for each in messages)

    def send(count: int) -> None:
        nonlocal sent
        heir.do("send", topic="Order", first=sent, count=count, keys=KEYS, tags="ok")
        sent += count

    def shared() -> bool:
        send(KEYS)
        last = [{each.queue_id for each in clients.got("c") if each.n >= sent - KEYS} for clients in (victim, heir)]
        return [len(queues) for queues in last] == [2, 2]

    broker.wait_until(shared, 60, "have two consumers share its queues")
    send(80)
    heir.process.wait_until(lambda: len(victim.got("c") + heir.got("c")) >= sent, 30, "consume all, both of them")
    before = {queue: offsets(victim.got("c"), queue) for queue in QUEUES}
    theirs = {each.queue_id for each in victim.got("c") if each.n >= sent - 80}
    own = set(QUEUES) - theirs
    assert len(own) == 2

    victim.process.kill()
    send(80)
    known = len(heir.got("c"))
    # Alone in its group, it asks for the locks each second: it does not get them while they hold.
    for _ in range(3):
        send(KEYS)
        heir.wait_got("c", is_in_the_last(KEYS), "its own")
    assert {each.queue_id for each in heir.got("c")[known:]} <= own

    def locks_expired() -> bool:
        return any("locks of group G have expired" in line for line in broker.lines())

    assert not locks_expired()
    broker.set_clock(f"advance {LOCK_S + 1}")
    heir.process.wait_until(
        lambda: {each.n for each in victim.got("c") + heir.got("c")} == set(range(sent)), 60, "take over"
    )

    assert locks_expired()
    messages = heir.got("c")
    check_content(messages, "ok")
    for queue in QUEUES:
        mine = offsets(messages, queue)
        # One that was taken by both had not been committed; none is left out, none comes out of its turn.
        assert mine == list(range(mine[0], mine[0] + len(mine)))
        if queue in theirs:
            assert before[queue] == list(range(before[queue][0], before[queue][-1] + 1))
    for key in range(KEYS):
        numbers = [each.n for each in messages if each.n % KEYS == key]
        assert numbers == sorted(numbers)
        assert len({each.queue_id for each in messages if each.n % KEYS == key}) == 1
    check_places(list({each.n: each for each in victim.got("c") + messages}.values()), heir.sent())
    assert our_servers.errors() == []


@pytest.mark.proves(
    "Order",
    "strict topics (`order=true`, ORDER_TOPIC_CONFIG, `orderMessageEnable` of the name server): the "
    "queues stay what they are, and a send that cannot go to its queue is rejected",
)
def test_a_strict_topic_rejects_a_send_rather_than_use_another_queue(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv(orderMessageEnable="true").address
    broker = our_servers.broker(namesrv)
    queues = 6  # four here, two on a broker that is down
    make_topic(broker.address, namesrv, "Loose", 4)

    async def make_strict() -> None:
        async with AdminClient(namesrv) as admin:
            await admin.create_and_update_topic_config(broker.address, TopicConfig("Strict", 4, 4, order=True))
            await admin.create_or_update_order_conf("Strict", "broker-a:4;broker-b:2")

    asyncio.run(make_strict())
    clients = Scenario(java, namesrv)
    sent = 0

    def send(topic: str, keys: int, count: int) -> dict[int, int]:
        """Send by key, a number's key being what is left when it is divided; returns the queue of each taken number."""
        nonlocal sent
        clients.do("send", topic=topic, first=sent, count=count, keys=keys, tags="ok", refused=1)
        sent += count
        return {each.n: each.queue_id for each in clients.sent() if each.n >= sent - count}

    def check_strict() -> None:
        taken = send("Strict", queues, 2 * queues)
        assert taken == {n: n % queues for n in range(sent - 2 * queues, sent) if n % queues < 4}
        refused = {int(n): why for n, why in clients.lines("REFUSED") if int(n) >= sent - 2 * queues}
        assert refused.keys() | taken.keys() == set(range(sent - 2 * queues, sent))
        assert all("broker[broker-b] not exist" in why for why in refused.values())

    check_strict()
    # More queues change nothing for it, while an ordinary topic uses them at once.
    make_topic(broker.address, namesrv, "Loose", 8)
    asyncio.run(more_queues(broker.address, namesrv))
    broker.wait_until(lambda: set(send("Loose", 8, 8).values()) == set(range(8)), 60, "have its new queues used")
    check_strict()

    # A broker that may not be written to is one that ordinary topics are led away from; a strict one has nowhere to go.
    with RawClient(broker.address) as raw:
        assert raw.ask(UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4").code == 0
    known = len(clients.lines("REFUSED"))
    assert send("Strict", 4, 4) == {}
    refused = clients.lines("REFUSED")[known:]
    assert len(refused) == 4
    assert all("CODE: 16" in why and "brokerPermission is 4" in why for _, why in refused)


async def more_queues(broker: str, namesrv: str) -> None:
    async with AdminClient(namesrv) as admin:
        await admin.create_and_update_topic_config(broker, TopicConfig("Strict", 8, 8, order=True))
