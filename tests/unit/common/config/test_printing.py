"""What `-p` and `-m` print, held against what RocketMQ 5.5.0 printed."""

from pathlib import Path

import pytest

from rocketbroker.common.config.load import load_broker_settings, load_namesrv_settings
from rocketbroker.common.config.printing import NOT_ACTED_ON, broker_lines, namesrv_lines

GOLDEN = Path(__file__).parents[3] / "golden" / "mqadmin"
MACHINE_DEPENDENT = {"brokerIP1", "brokerIP2", "brokerName", "listenPort", "rocketmqHome", "namesrvAddr"}


def recorded(name):
    lines = (GOLDEN / name).read_text().splitlines()
    return dict(reversed([tuple(line.split("=", 1)) for line in lines if "=" in line]))


def as_dict(lines):
    pairs = [tuple(line.split("=", 1)) for line in lines if line != NOT_ACTED_ON]
    assert len(dict(pairs)) == len(pairs), "a name is printed twice"
    return dict(pairs)


@pytest.mark.parametrize(("file", "important"), [("mqbroker-p.txt", False), ("mqbroker-m.txt", True)])
def test_the_broker_prints_what_rocketmq_prints(file, important):
    printed = as_dict(broker_lines(load_broker_settings(None, None, {}), important=important))
    for name, value in recorded(file).items():
        assert name in printed
        if name not in MACHINE_DEPENDENT:
            assert printed[name] == value, name


def test_acted_on_settings_come_first_in_rocketmqs_order():
    lines = broker_lines(load_broker_settings(None, None, {}), important=True)
    acted = [line.split("=")[0] for line in lines[: lines.index(NOT_ACTED_ON)]]
    order = [name for name in recorded_order("mqbroker-m.txt") if name in acted]
    assert [name for name in acted if name in order] == order
    assert acted[:3] == ["namesrvAddr", "listenPort", "brokerIP1"]
    assert "flushDiskType" in acted


def recorded_order(name):
    return [line.split("=")[0] for line in (GOLDEN / name).read_text().splitlines() if "=" in line]


def test_given_values_are_shown_acted_on_or_not(tmp_path, monkeypatch):
    file = tmp_path / "b.conf"
    file.write_text("maxMessageSize=100\nfileReservedTime=48\nfilterServerNums=1\n")
    monkeypatch.setenv("ROCKETMQ_HOME", "/opt/rocketmq")
    lines = broker_lines(load_broker_settings(file, "a:1", {}))
    heading = lines.index(NOT_ACTED_ON)
    assert lines.index("maxMessageSize=100") < heading
    assert lines.index("namesrvAddr=a:1") < heading
    assert lines.index("fileReservedTime=48") < heading
    assert lines.index("filterServerNums=1") > heading
    assert lines.index("rocketmqHome=/opt/rocketmq") > heading


def test_the_name_server_prints_its_own():
    printed = as_dict(namesrv_lines(load_namesrv_settings()))
    assert printed["listenPort"] == "9876"
    assert printed["scanNotActiveBrokerInterval"] == "5000"
    assert printed["supportActingMaster"] == "false"
    assert "brokerName" not in printed
