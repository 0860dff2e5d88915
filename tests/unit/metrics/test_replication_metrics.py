"""Lag of slaves."""

from types import SimpleNamespace
from typing import Any

from rocketbroker.metrics.replication_metrics import ReplicationMetrics
from tests.support.fakes import FakeClock


class Master:
    """A master with one slave."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.end = self.ack = 0
        self.slaves = [object()]
        service: Any = SimpleNamespace(slaves=self.slaves, runtime_info=self._info)
        client: Any = SimpleNamespace(problem="")
        self.metrics = ReplicationMetrics(service, client, self.clock, is_slave=False)

    def _info(self) -> SimpleNamespace:
        slave = SimpleNamespace(addr="192.0.2.9:4711", diff=self.end - self.ack, slave_ack_offset=self.ack)
        return SimpleNamespace(master_commit_log_max_offset=self.end, ha_connection_info=[slave])

    def grow(self, size: int) -> None:
        """Append, and let a second pass."""
        self.end += size
        self.metrics.mark()
        self.clock.advance(1)

    def figures(self) -> dict[str, list[Any]]:
        prefix = "rocketbroker_replication_"
        return {each.name.removeprefix(prefix): list(each.samples) for each in self.metrics.families()}


def test_a_slave_that_has_all_is_not_behind():
    master = Master()
    master.grow(100)
    master.ack = 100

    assert master.figures() == {
        "slaves": [({}, 1)],
        "lag_bytes": [({"slave": "192.0.2.9:4711"}, 0)],
        "lag_seconds": [({"slave": "192.0.2.9:4711"}, 0.0)],
    }


def test_the_lag_in_seconds_is_the_age_of_what_the_slave_lacks():
    master = Master()
    for _ in range(5):
        master.grow(100)
    master.ack = 200
    slave = {"slave": "192.0.2.9:4711"}

    assert master.figures()["lag_bytes"] == [(slave, 300)]
    assert master.figures()["lag_seconds"] == [(slave, 3.0)]


def test_a_log_that_rests_keeps_the_age_of_its_last_message():
    master = Master()
    master.grow(100)
    for _ in range(9):
        master.grow(0)

    assert master.figures()["lag_seconds"][0][1] == 10.0


def test_a_message_after_a_long_rest_is_not_as_old_as_the_rest():
    master = Master()
    master.grow(100)
    master.ack = 100
    master.clock.advance(7_200)
    master.end += 50  # and no mark since

    assert master.figures()["lag_bytes"][0][1] == 50
    assert master.figures()["lag_seconds"][0][1] == 0.0


def test_marks_are_kept_while_there_are_slaves_only():
    master = Master()
    master.grow(100)
    master.slaves.clear()
    master.grow(100)

    assert master.metrics.lag_s(0, 200) == 0.0


def test_a_slave_shows_that_it_follows():
    client: Any = SimpleNamespace(problem="")
    service: Any = SimpleNamespace()
    metrics = ReplicationMetrics(service, client, FakeClock(), is_slave=True)
    assert [list(each.samples) for each in metrics.families()] == [[({}, 1)]]
    client.problem = "the logs differ"

    assert [list(each.samples) for each in metrics.families()] == [[({}, 0)]]
