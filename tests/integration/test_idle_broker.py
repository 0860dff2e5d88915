"""A broker without clients sleeps."""

import time
from pathlib import Path

import pytest

from tests.support.our_servers import OurServer
from tests.support.waiting import wait_until

SECONDS = 4.0
WAKES_A_SECOND = 4  # the looks of all parts coincide, twice a second; apart they would be 24


def wakes(server: OurServer) -> int:
    """Return how often the threads of a server have gone to sleep."""
    count = 0
    for status in Path(f"/proc/{server.process.pid}/task").glob("*/status"):
        lines = status.read_text().splitlines()
        count += next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:"))
    return count


def wakes_a_second(server: OurServer) -> float:
    before, since = wakes(server), time.monotonic()
    time.sleep(SECONDS)
    return (wakes(server) - before) / (time.monotonic() - since)


@pytest.mark.long
def test_an_idle_broker_wakes_a_few_times_a_second(broker: OurServer):
    wait_until(lambda: wakes_a_second(broker) <= WAKES_A_SECOND, "the broker has settled and sleeps")
