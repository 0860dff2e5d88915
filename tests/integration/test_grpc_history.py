"""Receives through mqproxy while it or the broker is killed: notes of clients show that nothing is lost or repeated."""

import asyncio
import random

import pytest

pytest.importorskip("grpc", reason="the extra grpc is not installed")

from tests.support.grpc_pops import SETTINGS, GrpcPopLoad, GrpcPops
from tests.support.grpc_servers import GrpcServer, our_proxy
from tests.support.our_servers import OurServers, make_topic
from tests.support.pop_load import GROUP, ORDERED, QUEUES, TOPIC
from tests.support.waiting import until

KINDS = ("acked", "acked twice", "foreign", "acked late", "dropped", "changed")
# What has to happen in a short run, and what else in a long one.
SHORT = [f"{GROUP} acked", f"{ORDERED} acked", "first", "again", "sent", "wasted", "lost", "held"]
LONG = [*(f"{group} {kind}" for group in (GROUP, ORDERED) for kind in KINDS), "acked in a batch"]


def start(servers: OurServers) -> GrpcServer:
    server = our_proxy(servers, **SETTINGS)
    make_topic(server.broker, server.namesrv, TOPIC, QUEUES, message_type="FIFO")
    server.make_group(GROUP, retry_max_times=1_000)
    server.make_group(ORDERED, orderly=True, retry_max_times=1_000)
    return server


async def run(servers: OurServers, seed: int, kills: list[list[str]], between_s: float, wanted: list[str]) -> None:
    """Let clients work while these parts are killed and start again, then judge what they saw."""
    chance = random.Random(seed)
    server = await asyncio.to_thread(start, servers)
    load = GrpcPopLoad(GrpcPops(server.endpoints), seed)
    try:
        async with load.running():
            for names in kills:
                await asyncio.sleep(chance.uniform(between_s / 2, between_s))
                load.faults += 1
                await asyncio.to_thread(server.restart, names, is_killed=True)
            held = load.counts["held"]
            await until(lambda: all(load.counts[name] for name in wanted) and load.counts["held"] > held)
        await load.drain(90)
    finally:
        await load.client.stop()
        print(f"seed {seed}: {dict(load.counts)}")
    problems = load.problems + load.free.violations() + load.ordered.violations() + load.ordered.violations_of_order()
    assert problems == []
    assert servers.errors() == []


@pytest.mark.long
@pytest.mark.proves(
    "POP and the gRPC port",
    "mqproxy or its broker killed: no message is lost or comes after its acknowledgement",
)
async def test_a_killed_proxy_and_a_killed_broker_lose_and_repeat_nothing(servers: OurServers) -> None:
    await run(servers, 5, [["proxy"], ["broker"]], between_s=0.8, wanted=SHORT)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(20, 23))
async def test_servers_killed_for_minutes_lose_and_repeat_nothing(servers: OurServers, seed: int) -> None:
    chance = random.Random(seed)
    kills = [chance.choice([["proxy"], ["broker"], ["broker", "proxy"]]) for _ in range(20)]
    await run(servers, seed, kills, between_s=4.0, wanted=SHORT + LONG)
