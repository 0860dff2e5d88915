"""POP at a broker that is killed again and again: the notes of its clients show that nothing is lost or repeated."""

import asyncio
import random

import pytest

from tests.support.our_servers import BOOT_LIMIT, BOOTED, OurServer, OurServers
from tests.support.pop_journal import Delivery, Journal, Place
from tests.support.pop_load import QUEUES, PopLoad, RemotingPops
from tests.support.waiting import until

SETTINGS: dict[str, str | int] = {"autoCreateTopicEnable": "true", "defaultTopicQueueNums": QUEUES}
# What clients do by chance, and what has happened at the end besides.
KINDS = ("acked", "acked twice", "foreign", "acked late", "dropped", "changed")
CHOSEN = [f"{group} {kind}" for group in ("CG_Free", "CG_Ordered") for kind in KINDS]
HAPPENED = [*CHOSEN, "first", "again", "acked in a batch", "sent", "wasted", "lost"]


def launch(servers: OurServers, old: OurServer | None = None) -> OurServer:
    port, store = (old.port, old.store) if old else (0, None)
    broker = servers.launch_broker("", store, SETTINGS, port=port)
    broker.wait_for(BOOTED, BOOT_LIMIT)
    return broker


async def run(servers: OurServers, seed: int, ends: int, between_s: float) -> None:
    """Let clients work while the broker ends and starts again, then judge what they saw."""
    chance = random.Random(seed)
    broker = await asyncio.to_thread(launch, servers)
    load = PopLoad(RemotingPops(broker.address), seed)
    try:
        async with load.running():
            for number in range(ends):
                await asyncio.sleep(chance.uniform(between_s / 2, between_s))
                # The first is a kill, so that each run has one.
                await asyncio.to_thread(broker.kill if not number or chance.random() < 0.7 else broker.stop)
                broker = await asyncio.to_thread(launch, servers, broker)
            await asyncio.sleep(between_s)
            await until(lambda: all(load.counts[name] for name in CHOSEN))
        await load.drain(60)
    finally:
        await load.client.stop()
        print(f"seed {seed}: {dict(load.counts)}")
    problems = load.free.violations() + load.ordered.violations() + load.ordered.violations_of_order()
    assert problems == []
    assert [name for name in HAPPENED if not load.counts[name]] == []


@pytest.mark.long
@pytest.mark.proves(
    "Consumers",
    "POP at a broker that is killed: no message is lost or comes after its acknowledgement, order is kept",
)
async def test_a_killed_broker_loses_and_repeats_nothing(servers: OurServers) -> None:
    await run(servers, 5, ends=1, between_s=1.2)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(20, 23))
async def test_a_broker_killed_for_minutes_loses_and_repeats_nothing(servers: OurServers, seed: int) -> None:
    await run(servers, seed, ends=30, between_s=3.0)


# -- the judgement itself


def delivery(number: int, pop_ms: int, *, visible_ms: int, tried_ms: int | None = None, acked_ms: int | None = None):
    """A delivery of message ``number``, stored at that offset."""
    return Delivery(number, Place("0", 0, number), pop_ms, visible_ms, "", tried_ms, acked_ms)


def journal(*deliveries: Delivery) -> Journal:
    """Notes of three messages, and their deliveries."""
    found = Journal(dict.fromkeys(range(3), True))
    found.delivered(deliveries)
    return found


def whole() -> list[Delivery]:
    """Deliveries that break no promise: message 1 comes twice."""
    return [
        delivery(0, 10, visible_ms=50, tried_ms=20, acked_ms=21),
        delivery(1, 10, visible_ms=50),
        delivery(1, 50, visible_ms=90, tried_ms=60, acked_ms=61),
        delivery(2, 70, visible_ms=110, tried_ms=80, acked_ms=85),
    ]


def test_a_whole_history_has_no_violation() -> None:
    found = journal(*whole())
    assert found.violations() + found.violations_of_order() == []


@pytest.mark.parametrize(
    ("added", "left_out", "problem"),
    [
        (None, 3, "message 2 did not come, or not again"),
        (None, 2, "message 1 did not come, or not again"),
        (delivery(0, 100, visible_ms=140, tried_ms=101), None, "message 0 came after its acknowledgement"),
        (delivery(1, 40, visible_ms=45, tried_ms=41), None, "message 1 came 10 ms early"),
        (delivery(7, 40, visible_ms=90, tried_ms=41), None, "message 7 was not sent"),
    ],
)
def test_a_broken_promise_is_found(added: Delivery | None, left_out: int | None, problem: str) -> None:
    deliveries = [each for index, each in enumerate(whole()) if index != left_out]
    found = journal(*deliveries, *([added] if added else [])).violations()
    assert any(each.startswith(problem) for each in found), found


def test_a_message_before_an_open_one_is_found() -> None:
    early = delivery(2, 55, visible_ms=69, tried_ms=56)
    assert [each.split(": ")[1] for each in journal(*whole(), early).violations_of_order()] == [
        "offset 2 came at 55 before 1 was acknowledged"
    ]


def test_a_swapped_message_is_found() -> None:
    swapped = delivery(1, 10, visible_ms=50, tried_ms=20)
    swapped.place = Place("0", 0, 5)
    (first, *_) = journal(delivery(2, 10, visible_ms=50, tried_ms=20), swapped).violations_of_order()
    assert first == "queue 0: the messages are stored as [2, 1]"


def test_what_a_promoted_slave_may_lack_is_no_violation_and_the_rest_is() -> None:
    found = journal(*whole()[:2])
    known = found.copy()
    found.sent[3] = True
    found.delivered([delivery(3, 60, visible_ms=99, tried_ms=61, acked_ms=62), *whole()[2:]])
    found.fall_back(known)

    # Message 1 was popped again, and message 3 sent, after the slave's last news.
    again = [delivery(1, 70, visible_ms=99, tried_ms=71), delivery(2, 80, visible_ms=99, tried_ms=81)]
    found.delivered(again)
    assert found.violations() + found.violations_of_order() == []
    found.delivered([delivery(0, 100, visible_ms=140, tried_ms=101)])
    assert [each.split(":")[0] for each in found.violations()] == ["message 0 came after its acknowledgement"]
