"""A broker that is stopped and started again, and the settings it takes."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.dev_broker import DevBroker, broker_settings, disk_use
from rocketbroker.common.config.load import BrokerSettings
from rocketbroker.common.errors import ConfigError
from tests.support.ports import LOOPBACK


async def test_a_restart_keeps_the_ports(tmp_path: Path):
    broker = DevBroker(broker_settings(0, tmp_path, ""))
    addresses = []
    for _ in range(2):
        await broker.start()
        addresses.append(broker.address)
        assert broker.is_running
        assert broker.controller.address == broker.address
        await broker.stop()
    assert addresses[0] == addresses[1]
    assert not broker.is_running


def listeners(*ports: int) -> Iterator[socket.socket]:
    """Listen on those ports that are free, as another process may at any time."""
    for port in ports:
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind((LOOPBACK, port))
            other.listen()
        except OSError:
            other.close()
        else:
            yield other


async def test_free_ports_are_the_brokers_own_before_it_listens(tmp_path: Path):
    taken: list[socket.socket] = []

    def bind(settings: BrokerSettings) -> BrokerController:
        controller = BrokerController.bind(settings)
        taken.extend(listeners(controller.port, controller.port - 2, controller.port + 1))
        return controller

    broker = DevBroker(broker_settings(0, tmp_path, ""), bind)
    try:
        await broker.start()
        assert taken == []
    finally:
        for each in taken:
            each.close()
        await broker.stop()


async def test_a_stopped_broker_keeps_its_ports_for_the_next_start(tmp_path: Path):
    broker = DevBroker(broker_settings(0, tmp_path, ""))
    await broker.start()
    port = broker.settings.transport.listen_port
    await broker.stop(keep_ports=True)
    for each in (port, port - 2):
        with socket.socket() as client:
            assert client.connect_ex((LOOPBACK, each)) != 0
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((LOOPBACK, each))
    # The port for slaves is another process's meanwhile.
    others = list(listeners(port + 1))
    try:
        await broker.start()
        assert broker.settings.transport.listen_port == port
        await broker.stop()
    finally:
        for other in others:
            other.close()
    with socket.create_server((LOOPBACK, port)):
        pass


async def test_a_stopped_broker_has_no_parts(tmp_path: Path):
    broker = DevBroker(broker_settings(0, tmp_path, "", name="broker-b"))
    await broker.stop()
    with pytest.raises(ConfigError, match="broker broker-b is not running; start it first"):
        _ = broker.controller
    assert broker.disk_full == ""


def test_properties_are_checked(tmp_path: Path):
    settings = broker_settings(0, tmp_path, "", properties={"flushDiskType": "SYNC_FLUSH", "maxMessageSize": "1000"})
    assert (settings.store.flush_disk_type, settings.store.max_message_size) == ("SYNC_FLUSH", 1000)
    with pytest.raises(ConfigError, match="did you mean flushDiskType"):
        broker_settings(0, tmp_path, "", properties={"flushDiskTyp": "SYNC_FLUSH"})
    with pytest.raises(ConfigError, match="brokerName is set by the server itself"):
        broker_settings(0, tmp_path, "", properties={"brokerName": "x"})


def test_a_disk_has_the_given_use():
    assert disk_use(99).used / disk_use(99).capacity == 0.99
