"""A broker that is stopped and started again, and the settings it takes."""

from pathlib import Path

import pytest

from rocketbroker.app.dev_broker import DevBroker, broker_settings, disk_use
from rocketbroker.common.errors import ConfigError


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
