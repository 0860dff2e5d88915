"""Deliveries of a master: a pause long enough for a name server ends them until the pre-online steps have run."""

import asyncio
from collections.abc import Callable

import pytest

from rocketbroker.broker.slave import delivery_lease
from rocketbroker.broker.slave.delivery_lease import DeliveryLease, MasterDeliveries, running_time
from rocketbroker.common.config import BrokerConfig
from tests.support.waiting import until


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Steps:
    """A part that notes its starts and stops in a list that all share; ``during`` runs amid each start."""

    def __init__(self, name: str, log: list[str], during: Callable[[], None] = lambda: None) -> None:
        self._name, self._log, self.during = name, log, during

    async def start(self) -> None:
        self._log.append(f"start {self._name}")
        await asyncio.sleep(0)
        self.during()

    async def stop(self) -> None:
        self._log.append(f"stop {self._name}")


def lease(time: Time, **settings: object) -> DeliveryLease:
    config = BrokerConfig.model_validate({"enableSlaveActingMaster": "true", **settings})
    return DeliveryLease(config, time)


def confirmed(time: Time, **settings: object) -> DeliveryLease:
    made = lease(time, **settings)
    made.renew()
    assert made.confirm()
    return made


def test_a_lease_is_lost_by_a_gap_that_may_have_been_too_long_for_a_name_server():
    time = Time()
    made = confirmed(time, brokerNotActiveTimeoutMillis=10_000, brokerHeartbeatInterval=1_000)
    for _ in range(20):
        time.now += 9.0
        assert made.holds()
    time.now += 9.001
    assert not made.holds()
    assert not made.holds(), "the next look comes soon after, and the lease is lost all the same"
    made.renew()
    assert not made.holds(), "it is not confirmed yet"
    assert made.confirm()
    assert made.holds()


def test_a_pause_before_the_confirmation_counts():
    time = Time()
    made = confirmed(time)
    made.renew()
    time.now += 60.0
    assert not made.confirm()


@pytest.mark.parametrize("settings", [{"enableSlaveActingMaster": "false"}, {"skipPreOnline": "true"}])
def test_a_lease_always_holds_where_no_other_broker_delivers(settings: dict[str, str]):
    time = Time()
    made = confirmed(time, **settings)
    time.now += 3600.0
    assert made.holds()


def test_the_clock_counts_on():
    first = running_time()
    assert running_time() >= first > 0


async def test_a_pause_runs_the_pre_online_steps_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(delivery_lease, "_TICK_S", 0.001)
    time, log = Time(), list[str]()
    made, services = lease(time), Steps("services", log)
    part = MasterDeliveries(made, Steps("pre-online", log), services, lambda: log.append("taken over"))
    begin = ["start pre-online", "taken over", "start services"]
    await part.start()
    assert log == begin

    time.now += 60.0
    assert not made.holds()
    await until(lambda: len(log) >= 7)
    assert log == [*begin, "stop services", *begin]
    assert made.holds()

    await part.stop()
    assert log[7:] == ["stop services"]


async def test_a_pause_amid_the_pre_online_steps_begins_them_anew():
    time, log = Time(), list[str]()

    def pause_once() -> None:
        if log.count("start pre-online") == 1:
            time.now += 60.0

    part = MasterDeliveries(lease(time), Steps("pre-online", log, pause_once), Steps("services", log), lambda: None)
    await part.start()
    await part.stop()
    assert log == ["start pre-online", "start pre-online", "start services", "stop services"]


async def test_services_that_cannot_start_are_tried_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(delivery_lease, "_TICK_S", 0.001)
    monkeypatch.setattr("rocketbroker.common.lifecycle.RESTART_S", 0.001)
    time, log = Time(), list[str]()
    made, services = lease(time), Steps("services", log)
    part = MasterDeliveries(made, Steps("pre-online", log), services, lambda: None)
    await part.start()

    def fail_once() -> None:
        services.during = lambda: None
        raise OSError("no disk")

    services.during = fail_once
    time.now += 60.0
    await until(lambda: log.count("start services") == 3)
    await part.stop()
    assert log[-1] == "stop services"
