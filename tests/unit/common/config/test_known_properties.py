"""The packaged list of RocketMQ's properties."""

from pathlib import Path

import pytest

from rocketbroker.common.config import known_properties

GOLDEN = Path(__file__).parents[3] / "golden" / "mqadmin"
CLASSES = (
    "BrokerConfig",
    "MessageStoreConfig",
    "NamesrvConfig",
    "NettyServerConfig",
    "NettyClientConfig",
    "AuthConfig",
)


def test_it_holds_every_recorded_property_with_its_default():
    current, compared = "", 0
    for line in (GOLDEN / "config-defaults-5.5.0.properties").read_text().splitlines():
        if line.startswith("# org."):
            current = line.rpartition(".")[2]
        elif "=" in line:
            name, _, value = line.partition("=")
            held = {item.name: item.default for item in known_properties.properties_of(current)}
            assert held[name] == value, (current, name)
            compared += 1
    assert compared > 500


def test_the_order_of_the_broker_is_that_of_rocketmq():
    printed = [line.partition("=")[0] for line in (GOLDEN / "mqbroker-p.txt").read_text().splitlines() if "=" in line]
    held = [item.name for item in known_properties.properties_of("BrokerConfig")]
    first = list(dict.fromkeys(printed))
    assert [name for name in held if name in first] == [name for name in first if name in held]
    assert len(set(held) & set(first)) > 200


@pytest.mark.parametrize("name", ["mapedFileSizeCommitLog", "filterServerNums", "haSlaveFallbehindMax"])
def test_names_that_5x_dropped_are_known_with_their_last_version(name):
    found = known_properties.find(name)
    assert found is not None
    assert found.last_version is not None


def test_an_unknown_name_has_a_nearest_name():
    assert known_properties.find("brokerNmae") is None
    assert known_properties.nearest("brokerNmae", []) == "brokerName"
    assert known_properties.nearest("BROKERNAME", []) == "brokerName"
    assert known_properties.nearest("adressServerPort", ["addressServerPort"]) == "addressServerPort"
    assert known_properties.nearest("zzzzzz", []) is None
