"""Order by sharding key to orderly Java consumers, of which one is killed."""

from collections.abc import Callable

import pytest

from tests.support.clocked_broker import clocked_broker
from tests.support.java import Java
from tests.support.java_lines import Got, check_content, check_places
from tests.support.java_scenario import Scenario
from tests.support.our_servers import OurServers, make_topic

pytestmark = pytest.mark.java

QUEUES = range(4)
KEYS = 8  # two in each queue
LOCK_S = 60  # REBALANCE_LOCK_MAX_LIVE_TIME


def offsets(messages: list[Got], queue_id: int) -> list[int]:
    return [each.queue_offset for each in messages if each.queue_id == queue_id]


def test_who_takes_over_from_a_killed_consumer_goes_on_in_order_once_its_locks_are_over(
    java: Java, our_servers: OurServers
):
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

    def taken_over() -> int:
        return sum("takes over the expired lock" in line and "topic='Order'" in line for line in broker.lines())

    assert taken_over() == 0
    broker.set_clock(f"advance {LOCK_S + 1}")
    heir.process.wait_until(
        lambda: {each.n for each in victim.got("c") + heir.got("c")} == set(range(sent)), 60, "take over"
    )

    assert taken_over() == len(theirs)
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
