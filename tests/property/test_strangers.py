"""Strangers against a broker: bounded memory, other clients' service, and nothing left behind.

Strangers at several addresses send every request code with extreme values, lengths and counts. Meanwhile a lawful
client sends, pulls and commits, and a probe measures the event loop.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.measure import anonymous_mib, probing
from rocketbroker.codec.remoting.handler import Route
from tests.property.test_fuzz_requests import broker as processors
from tests.support import stranger_broker
from tests.support.our_servers import BOOT_LIMIT, BOOTED, OurServer, OurServers
from tests.support.raw_client import RawClient, raw_frame, raw_header
from tests.support.strangers import LAWFUL_TOPIC, Lawful, connect_from, exchange, fill, join, run_strangers, until

SEED = 20_261_123
HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
# Small tables, so that strangers fill them.
TABLES = {"maxAutoCreateTopicNums": 400, "maxAutoCreateGroupNums": 200, "maxConsumerOffsetNums": 2_000}
MOST_MIB = 400.0
# Several read events may come between two answers to the probe; each has its budget.
MOST_HELD_S = 1.5
MOST_WAIT_S = 15.0
# Objects of connections and clients; all but those of the test itself end with their connection.
OF_STRANGERS = ("RemotingConnection", "ClientChannelInfo", "ConsumerGroupInfo", "PullRequest", "Task")


class StrangerServers(OurServers):
    """Starts a broker to which loopback addresses but 127.0.0.1 are mere clients."""

    def command(self, _module: str, *arguments: str) -> list[str]:
        return [sys.executable, "-P", stranger_broker.__file__, *arguments]

    def environment(self) -> dict[str, str]:
        return super().environment() | {"STRANGER_COUNTS": str(self.home / "counts.json")}

    def counts(self, server: OurServer) -> dict[str, int]:
        """Return the number of live objects of each type."""
        path = self.home / "counts.json"
        path.unlink(missing_ok=True)
        os.kill(server.process.pid, signal.SIGUSR1)
        assert until(path.exists)
        counts: dict[str, int] = json.loads(path.read_text())
        return counts

    def left(self, server: OurServer, before: dict[str, int]) -> dict[str, int]:
        """Return the number of objects of connections and clients that there are more than before."""
        counts = self.counts(server)
        return {name: more for name in OF_STRANGERS if (more := counts.get(name, 0) - before.get(name, 0)) > 0}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[StrangerServers]:
    started = StrangerServers(tmp_path)
    yield started
    started.close()


@pytest.fixture
async def routes(tmp_path: Path) -> dict[int, Route]:
    """The table of the broker's request codes."""
    async with processors(tmp_path / "table") as (found, _):
        return found


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def withstand(
    servers: StrangerServers,
    routes: dict[int, Route],
    count: int,
    seconds: float,
    queued: int,
    record: Callable[[str, object], None],
) -> str:
    """Let strangers at a broker that has a long queue; return what was measured."""
    server = servers.launch_broker("", None, {"slowRequestMs": 50, **TABLES})
    server.wait_for(BOOTED, BOOT_LIMIT)
    pid = server.process.pid
    max_offset = raw_frame(raw_header(30, {"topic": LAWFUL_TOPIC, "queueId": "0"}))
    with RawClient(connect_from("127.0.0.9", server.address)) as client:
        join(client, "CG_Before", LAWFUL_TOPIC)
        fill(client, LAWFUL_TOPIC, queued)
        exchange(client, "CG_Before", LAWFUL_TOPIC)
    assert until(lambda: not servers.left(server, {"Task": 1_000}))
    before, threads = servers.counts(server), threads_of(pid)
    with Lawful("127.0.0.10", server.address) as lawful, probing(server.address, pid, max_offset) as probe:
        probe.take()  # it measures from here on
        sent = run_strangers(routes, server.address, HOSTS, SEED, count, seconds)
        waits, service = probe.take(), lawful.served()
    used = anonymous_mib(pid)
    # A new lawful client gets a topic, a group, and an offset.
    with RawClient(connect_from("127.0.0.11", server.address)) as client:
        exchange_new(client)
    # What belongs to a connection ends with it; the others are entries of tables, which are bounded.
    assert until(lambda: servers.left(server, before) == {}), servers.left(server, before)
    assert until(lambda: threads_of(pid) <= threads + 2)
    assert not [line for line in server.lines() if "Traceback" in line]
    found = (
        f"seed {SEED}, {sent} pieces: {used:.0f} MiB, loop held {waits.held * 1000:.0f} ms, waits p99 "
        f"{waits.p99 * 1000:.0f} ms, longest {waits.longest:.2f} s; {service.messages} lawful messages, longest "
        f"{service.longest_s:.2f} s"
    )
    record("found", found)
    assert service.messages > 0
    assert used < MOST_MIB, found
    assert waits.held < MOST_HELD_S, found
    assert max(service.longest_s, waits.longest) < MOST_WAIT_S, found
    return found


def exchange_new(client: RawClient) -> None:
    join(client, "CG_New", "New")
    exchange(client, "CG_New", "New")


@pytest.mark.long
def test_a_broker_withstands_strangers(
    servers: StrangerServers, routes: dict[int, Route], record_property: Callable[[str, object], None]
) -> None:
    withstand(servers, routes, 200, 60.0, 10_000, record_property)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_broker_withstands_strangers_for_long(
    servers: StrangerServers,
    routes: dict[int, Route],
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = withstand(servers, routes, 1 << 30, 180.0, 300_000, record_property)
    with capsys.disabled():
        print(f"\nstrangers: {found}")
