"""Our broker is killed again and again under Java producers and consumers: it keeps what it acknowledged, in order."""

import time

import pytest

from tests.support.crash_later import LaterLoad
from tests.support.crash_load import CrashLoad
from tests.support.java import Java
from tests.support.our_servers import OurServers

pytestmark = pytest.mark.java

SHORT_CYCLES = 4
SHORT_CYCLES_OF_LATER = 3
LONG_CYCLES = 125  # of each of the four kinds
VARIANTS = [
    ("ASYNC_FLUSH", "concurrent", 20_240_601),
    ("SYNC_FLUSH", "orderly", 20_240_602),
    ("ASYNC_FLUSH", "orderly", 20_240_603),
    ("SYNC_FLUSH", "concurrent", 20_240_604),
]
LATER_VARIANTS = [("ASYNC_FLUSH", 20_240_611), ("SYNC_FLUSH", 20_240_612)]


def run(
    servers: OurServers, java: Java, cycles: int, flush: str, listener: str, seed: int, later: LaterLoad | None = None
) -> None:
    print(f"seed {seed}")
    started = time.monotonic()
    load = CrashLoad(servers, java, seed, listener, {"flushDiskType": flush}, later)
    load.start()
    for _ in range(cycles):
        load.cycle()
    load.finish()
    print(f"{flush}, {listener}: {load.summary()}; {time.monotonic() - started:.0f} s")


@pytest.mark.proves("What is promised", "killed broker")
@pytest.mark.proves("Order", "order over kills of the broker")
# The load with delayed messages, below, has concurrent consumers and asynchronous flushes as well.
@pytest.mark.parametrize(("flush", "listener", "seed"), VARIANTS[1:2])
def test_a_killed_broker_keeps_acknowledged_messages(
    our_servers: OurServers, java: Java, flush: str, listener: str, seed: int
):
    run(our_servers, java, SHORT_CYCLES, flush, listener, seed)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("flush", "listener", "seed"), VARIANTS)
def test_a_broker_killed_many_times_keeps_acknowledged_messages(
    our_servers: OurServers, java: Java, flush: str, listener: str, seed: int
):
    run(our_servers, java, LONG_CYCLES, flush, listener, seed + 100)


@pytest.mark.proves(
    "Delayed messages",
    "a broker that is killed again and again amid delayed and timer messages: all of them come, none "
    "early, and again only messages whose delivery was not recorded",
)
@pytest.mark.proves(
    "Transactions",
    "a broker that is killed again and again amid transactions: what is committed comes once, what is "
    "rolled back never",
)
@pytest.mark.timeout(300)
def test_a_killed_broker_delivers_delayed_messages_in_time(our_servers: OurServers, java: Java):
    """Delayed messages and transactions among others: all of them come, none early, and none that was rolled back."""
    flush, seed = LATER_VARIANTS[0]
    run(our_servers, java, SHORT_CYCLES_OF_LATER, flush, "concurrent", seed, LaterLoad())


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("flush", "seed"), LATER_VARIANTS)
def test_a_broker_killed_many_times_delivers_delayed_messages_in_time(
    our_servers: OurServers, java: Java, flush: str, seed: int
):
    run(our_servers, java, LONG_CYCLES, flush, "concurrent", seed + 100, LaterLoad())
