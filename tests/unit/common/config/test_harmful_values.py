"""Values that would harm are refused at the start and by a hot change, with what would be sensible."""

from pathlib import Path

import pytest

from rocketbroker.common.config import BrokerConfig, MessageStoreConfig, NamesrvConfig, TransportConfig
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.config.load import load_broker_settings, load_namesrv_settings
from rocketbroker.common.errors import ConfigError

DAY_MS = 86_400_000
# Name, a value that harms, the end of the range that is named.
HOT = [
    ("fileReservedTime", "0", "a whole number from 1 to 876000 (h)"),
    ("diskSpaceCleanForciblyRatio", "1", "a whole number from 30 to 100 (%)"),
    ("diskSpaceWarningLevelRatio", "1", "a whole number from 35 to 100 (%)"),
    ("diskMaxUsedSpaceRatio", "1", "a whole number from 10 to 100 (%)"),
    ("flushCommitLogThoroughInterval", str(DAY_MS), "a whole number from 1 to 600000 (ms)"),
    ("flushCommitLogLeastPages", "1000000", "a whole number from 0 to 16384"),
    ("flushConsumerOffsetInterval", str(DAY_MS), "a whole number from 100 to 600000 (ms)"),
    ("flushDelayOffsetInterval", str(DAY_MS), "a whole number from 100 to 600000 (ms)"),
    ("timerFlushIntervalMs", str(DAY_MS), "a whole number from 100 to 60000 (ms)"),
    ("cleanResourceInterval", str(DAY_MS), "a whole number from 10 to 600000 (ms)"),
    ("registerNameServerPeriod", str(DAY_MS), "a whole number from 1000 to 60000 (ms)"),
    ("regionId", "x" * 40_000, "up to 255 printable characters"),
    ("brokerIP1", "x" * 254, "an IP address or host name, without a port"),
    ("brokerIP1", "0.0.0.0", "an IP address or host name, without a port"),
    ("brokerIP1", "224.0.0.1", "an IP address or host name, without a port"),
    ("brokerIP1", "10.0.0.256", "an IP address or host name, without a port"),
    ("brokerIP1", "10.0.0.7:10911", "an IP address or host name, without a port"),
    ("brokerIP1", '"},{"a', "an IP address or host name, without a port"),
    ("deleteWhen", "04;" * 100, "hours from 0 to 23 joined by ';'"),
    ("adminWhiteList", "10.0.0.1;" * 500, "at most 4096 characters"),
    ("adminWhiteList", "everyone", "IP addresses and networks"),
    ("brokerWhiteList", "10.0.0.7/8", "IP addresses and networks"),
]
AT_START = [
    ("flushIntervalCommitLog", str(DAY_MS), "a whole number from 1 to 60000 (ms)"),
    ("flushIntervalConsumeQueue", str(DAY_MS), "a whole number from 1 to 60000 (ms)"),
    ("osPageCacheBusyTimeOutMills", str(DAY_MS), "a whole number from 1 to 10000 (ms)"),
    ("brokerIP2", "::", "an IP address or host name, without a port"),
    ("rmqAddressServerDomain", "a b", "a host name or IP address, with :port"),
    ("rmqAddressServerDomain", "evil.example/x?", "a host name or IP address, with :port"),
    ("rmqAddressServerSubGroup", "x HTTP/1.1", "1 to 255 of the characters"),
    ("namesrvAddr", "10.0.0.1:9876;" * 400 + "10.0.0.1:9876", "host:port, several joined by ';'"),
    ("messageDelayLevel", " ".join(["1s"] * 300), "up to 255 numbers with s, m, h or d"),
    ("storePathRootDir", "/" + "x" * 5_000, "a path"),
    ("storePathIndex", "/" + "x" * 5_000, "a path"),
    ("bindAddress", "x" * 64 + ".example", "an IP address or host name of this machine"),
]


@pytest.mark.parametrize(("name", "value", "sensible"), [*HOT, *AT_START], ids=lambda text: text[:30])
def test_no_broker_starts_with_one(tmp_path: Path, name: str, value: str, sensible: str):
    file = tmp_path / "broker.conf"
    file.write_text(f"{name}={value}\n")

    with pytest.raises(ConfigError) as caught:
        load_broker_settings(file, environment={})

    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{file}:1: {name}=")
    assert sensible in line
    assert len(line) < 500


@pytest.mark.parametrize(("name", "value", "sensible"), HOT, ids=lambda text: text[:30])
def test_none_is_taken_at_run_time(name: str, value: str, sensible: str):
    models = (BrokerConfig(broker_ip1="127.0.0.1"), MessageStoreConfig(), TransportConfig())
    before = [model.model_copy() for model in models]

    with pytest.raises(ConfigError) as caught:
        apply_updates(models, {"traceOn": "false", name: value})

    assert sensible in str(caught.value)
    assert len(str(caught.value)) < 500
    assert list(models) == before


@pytest.mark.parametrize(
    ("name", "value", "sensible"),
    [
        ("scanNotActiveBrokerInterval", str(DAY_MS), "a whole number from 100 to 60000 (ms)"),
        ("waitSecondsForService", "86400", "a whole number from 0 to 3600 (s)"),
        ("addressServerBindAddress", "a b", "an IP address or host name of this machine"),
    ],
)
def test_no_name_server_starts_with_one(tmp_path: Path, name: str, value: str, sensible: str):
    file = tmp_path / "namesrv.properties"
    file.write_text(f"{name}={value}\n")

    with pytest.raises(ConfigError, match=name) as caught:
        load_namesrv_settings(file)
    assert sensible in str(caught.value)


@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7", "broker-a", "broker_a.example", "a.example."])
def test_ordinary_addresses_are_taken(address: str):
    assert BrokerConfig(broker_ip1=address).broker_ip1 == address


@pytest.mark.parametrize("address", ["", "0.0.0.0", "::", "localhost", "192.0.2.7"])
def test_ordinary_addresses_to_listen_on_are_taken(address: str):
    assert TransportConfig(bind_address=address).bind_address == address
    assert NamesrvConfig(address_server_bind_address=address).address_server_bind_address == address


def test_ordinary_names_of_an_address_server_are_taken():
    config = BrokerConfig(rmq_address_server_domain="ns.example:80", rmq_address_server_sub_group="nsaddr-unit/a")
    assert config.rmq_address_server_domain == "ns.example:80"


def test_a_region_cannot_carry_properties_of_its_own_into_messages():
    with pytest.raises(ConfigError, match="up to 255 printable characters"):
        apply_updates((BrokerConfig(broker_ip1="127.0.0.1"),), {"regionId": "a\x02TRACE_ON\x01b"})


def test_every_text_has_a_bound():
    """No setting takes 100 kB, so that none can swell an answer, a registration or a message."""
    for model in (BrokerConfig, MessageStoreConfig, NamesrvConfig, TransportConfig):
        for name, field in ((str(field.alias), field) for field in model.model_fields.values()):
            if field.annotation is not str:
                continue
            with pytest.raises(ValueError, match=name):
                model.model_validate({name: "a" * 100_000})


def test_a_long_name_that_nobody_knows_is_rejected_at_once():
    with pytest.raises(ConfigError) as caught:
        apply_updates((BrokerConfig(broker_ip1="127.0.0.1"),), {"x" * 1_000_000: "1"})
    assert len(str(caught.value)) < 500
