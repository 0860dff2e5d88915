"""Delay levels by the official Java client, over restarts, kills, and clocks that jump."""

import time
from collections import Counter

import pytest

from tests.support.clocked_broker import ClockedBroker, clocked_broker
from tests.support.java import Java
from tests.support.java_lines import check_content
from tests.support.java_scenario import Scenario
from tests.support.our_servers import OurServer, OurServers, make_topic, wait_serving
from tests.support.ports import free_ports
from tests.support.queue_ends import delayed

pytestmark = pytest.mark.java

SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


class StandingClock:
    """A broker for which time passes when the test says so, and not between a stop and a start either."""

    def __init__(self, servers: OurServers, namesrv: str) -> None:
        self._servers = servers
        self._namesrv = namesrv
        self._port = free_ports(-2, 1)
        self.passed = 0
        self._now = int(time.time() * 1000)
        self.process = self._start()

    def _start(self, **settings: str) -> ClockedBroker:
        clock = ["speed 0", f"set {self._now}"]
        store = self._servers.home / "store"
        return clocked_broker(self._servers, self._namesrv, store, port=self._port, clock=clock, **settings)

    def wait(self, seconds: int) -> None:
        self.set_clock(seconds)
        self.passed += seconds

    def set_clock(self, seconds: int) -> None:
        self._now = self.process.set_clock(f"step {seconds}")

    def stop_and_start(self, **settings: str) -> None:
        assert self.process.stop() == 0
        self.process = self._start(**settings)

    def kill_and_start(self) -> None:
        self.process.kill()
        self.process = self._start()


@pytest.mark.proves(
    "Delayed messages",
    "all 18 levels, up to 2 h; progress in `delayOffset.json`; nothing twice after a clean restart",
)
@pytest.mark.proves(
    "Delayed messages",
    "after a kill nothing is lost; what was delivered since the last write of the progress may come twice",
)
@pytest.mark.proves("Delayed messages", "a clock that jumps, forward and back")
def test_each_level_is_delivered_in_time_over_restarts_kills_and_clock_steps(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv().address
    broker = StandingClock(our_servers, namesrv)
    make_topic(broker.process.address, namesrv, "Delay", 1)
    clients = Scenario(java, namesrv)
    clients.do("consume", name="c", group="G", topic="Delay")
    for n in range(len(SECONDS)):
        clients.do("send", topic="Delay", first=n, tags="A,B,C", level=n + 1)
    assert delayed(namesrv, "Delay") == dict.fromkeys(range(1, 19), 1)

    def check(due: set[int], twice: set[int] | None = None) -> None:
        """All that is due has come, and nothing else: one that is early would be there for good."""
        clients.wait_got("c", lambda messages: {each.n for each in messages} >= due, str(due))
        counts = Counter(each.n for each in clients.got("c"))
        assert counts.keys() == due, f"after {broker.passed} s"
        assert {n for n, count in counts.items() if count > 1} <= (twice or set())

    broker.wait(9)
    check({0, 1})
    broker.wait(1)
    check({0, 1, 2})
    broker.stop_and_start()
    broker.wait(19)
    check({0, 1, 2})
    broker.wait(1)
    check({0, 1, 2, 3})
    # What was delivered since the last write of delayOffset.json may come once more after a kill.
    twice = {3}
    broker.kill_and_start()
    broker.wait(29)
    check({0, 1, 2, 3}, twice)
    broker.wait(1)
    check({0, 1, 2, 3, 4}, twice | {4})

    # Set back by an hour: what waits does so for its whole delay from then on at most, and is not early.
    broker.set_clock(-3600)
    clients.do("send", topic="Delay", first=18, tags="A,B,C", level=1)
    broker.wait(1)
    come = {0, 1, 2, 3, 4, 18}
    check(come, twice)
    broker.wait(SECONDS[5])
    check(come | {5}, twice)
    # And forward by three hours.
    broker.wait(3 * 3600)
    check(set(range(19)), twice)
    broker.stop_and_start()
    clients.do("send", topic="Delay", first=19, tags="A,B,C")
    check(set(range(20)), twice)

    check_content(clients.got("c"))
    assert [(each.n, each.msg_id) for each in clients.sent()] == sorted(
        {(each.n, each.msg_id) for each in clients.got("c")}
    )
    assert our_servers.errors() == []


@pytest.mark.proves("Delayed messages", "`messageDelayLevel` changed while messages wait")
@pytest.mark.proves(
    "Delayed messages",
    "a delay level or delivery time out of range, or not a number; a level above the highest is the highest",
)
def test_changed_and_unknown_delay_levels(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv().address
    broker = StandingClock(our_servers, namesrv)
    make_topic(broker.process.address, namesrv, "Levels", 1)
    clients = Scenario(java, namesrv)
    clients.do("consume", name="c", group="G", topic="Levels")
    clients.do("send", topic="Levels", first=0, tags="A,B,C", level=5)
    clients.do("send", topic="Levels", first=1, tags="A,B,C", level=99)
    assert delayed(namesrv, "Levels") == {5: 1, 18: 1}, "a level above the highest is the highest"

    broker.stop_and_start(messageDelayLevel="1s 40s 1h")
    clients.do("send", topic="Levels", first=2, tags="A,B,C", level=2)
    clients.do("send", topic="Levels", first=3, tags="A,B,C", level=4)
    assert delayed(namesrv, "Levels") == {2: 1, 3: 1, 5: 1, 18: 1}

    def check(*due: int) -> None:
        clients.wait_got("c", lambda messages: len(messages) >= len(due), str(due))
        assert sorted(each.n for each in clients.got("c")) == sorted(due), f"after {broker.passed} s"

    broker.wait(40)
    check(2)
    broker.wait(20)
    check(2, 0)
    broker.wait(3540)
    check(2, 0, 3)
    # Its level is no more; what that promised when it was sent holds.
    broker.wait(3600)
    check(2, 0, 3, 1)
    check_content(clients.got("c"))
    assert our_servers.errors() == []


@pytest.mark.proves("Delayed messages", "delay levels: not early, in real time")
@pytest.mark.soak
@pytest.mark.timeout(400)
def test_two_minutes_of_delay_take_two_minutes(java: Java, our_servers: OurServers):
    """The check on the clock of the others: mqbroker itself, by the time of the wall, killed on the way."""
    namesrv = our_servers.namesrv().address
    port = free_ports(-2, 1)

    def start() -> OurServer:
        server = our_servers.launch_broker(namesrv, our_servers.home / "store", {}, port)
        wait_serving(server, namesrv)
        return server

    broker = start()
    make_topic(broker.address, namesrv, "Real", 1)
    clients = Scenario(java, namesrv)
    clients.do("consume", name="c", group="G", topic="Real")
    for n in range(6):
        clients.do("send", topic="Real", first=n, tags="A,B,C", level=n + 1)
    clients.wait_got("c", lambda messages: {each.n for each in messages} == {0, 1, 2, 3}, "up to 30 s")
    broker.kill()
    broker = start()
    broker.wait_until(lambda: len({each.n for each in clients.got("c")}) == 6, 150, "deliver what is left")

    messages = clients.got("c")
    check_content(messages)
    first = {each.n: each for each in reversed(messages)}
    for n, seconds in enumerate(SECONDS[:6]):
        # Born by the clock of the client, stored for its consumers by that of the broker, on one machine.
        # A machine with other work may be late; a message of the next level would be later still.
        assert 1000 * seconds <= first[n].stored - first[n].born < 1000 * seconds + 20_000
    assert {n for n, count in Counter(each.n for each in messages).items() if count > 1} <= {2, 3}
