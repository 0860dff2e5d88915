import pytest

from rocketbroker.app.role_parts import ANY_ROLE, MASTER, BrokerRole, RoleParts


class FakePart:
    """Notes its starts and stops."""

    def __init__(self, name: str, noted: list[str], fails: str = "") -> None:
        self._name = name
        self._noted = noted
        self._fails = fails

    async def start(self) -> None:
        self._note("start")

    async def stop(self) -> None:
        self._note("stop")

    def _note(self, what: str) -> None:
        self._noted.append(f"{what} {self._name}")
        if what == self._fails:
            raise ValueError(self._name)


@pytest.fixture
def noted() -> list[str]:
    return []


@pytest.fixture
def parts(noted: list[str]) -> RoleParts:
    return RoleParts(
        (ANY_ROLE, FakePart("store", noted)),
        (MASTER, FakePart("schedule", noted)),
        (MASTER, FakePart("timer", noted)),
        (ANY_ROLE, FakePart("server", noted)),
    )


async def test_parts_start_in_order_and_stop_in_reverse_order(parts: RoleParts, noted: list[str]):
    await parts.take_role(BrokerRole.ASYNC_MASTER)
    started = ["start store", "start schedule", "start timer", "start server"]
    assert (parts.role, noted) == (BrokerRole.ASYNC_MASTER, started)
    noted.clear()

    await parts.stop()

    assert (parts.role, noted) == (None, ["stop server", "stop timer", "stop schedule", "stop store"])


async def test_a_role_stops_the_parts_of_the_other_while_the_rest_runs(parts: RoleParts, noted: list[str]):
    await parts.take_role(BrokerRole.ASYNC_MASTER)
    noted.clear()

    await parts.take_role(BrokerRole.SLAVE)
    assert noted == ["stop timer", "stop schedule"]
    await parts.take_role(BrokerRole.ASYNC_MASTER)
    assert noted[2:] == ["start schedule", "start timer"]
    noted.clear()
    await parts.stop()

    assert noted == ["stop server", "stop timer", "stop schedule", "stop store"]


async def test_a_slave_starts_without_the_parts_of_a_master(parts: RoleParts, noted: list[str]):
    await parts.take_role(BrokerRole.SLAVE)

    assert noted == ["start store", "start server"]


async def test_a_failed_start_leaves_the_parts_that_run_to_the_stop(noted: list[str]):
    parts = RoleParts((ANY_ROLE, FakePart("store", noted)), (ANY_ROLE, FakePart("server", noted, fails="start")))

    with pytest.raises(ValueError, match="server"):
        await parts.take_role(BrokerRole.ASYNC_MASTER)
    assert parts.role is None
    await parts.stop()

    assert noted == ["start store", "start server", "stop store"]


async def test_a_part_that_does_not_stop_keeps_no_other_running(noted: list[str], caplog: pytest.LogCaptureFixture):
    parts = RoleParts((ANY_ROLE, FakePart("store", noted)), (ANY_ROLE, FakePart("server", noted, fails="stop")))
    await parts.take_role(BrokerRole.ASYNC_MASTER)

    await parts.stop()

    assert noted[2:] == ["stop server", "stop store"]
    assert [record.getMessage() for record in caplog.records] == ["FakePart did not stop cleanly"]
