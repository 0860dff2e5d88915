"""Changes at run time: an allow-list, all or nothing, in place."""

from pathlib import Path

import pytest

from rocketbroker.common.config.current_settings import (
    NOT_ACTED_ON,
    NotChangeableError,
    apply_updates,
    broker_lines,
    config_text,
    hot_names,
    namesrv_lines,
    parse_updates,
)
from rocketbroker.common.config.fields import fields_by_name, trait_of, type_word
from rocketbroker.common.config.load import MODELS, load_broker_settings, load_namesrv_settings
from rocketbroker.common.config.properties_file import parse_properties, save_changes
from rocketbroker.common.errors import ConfigError


@pytest.fixture
def settings():
    return load_broker_settings(None, None, {})


def test_values_are_replaced_in_place(settings):
    changed = apply_updates(
        settings.models, {"maxMessageSize": "100", "longPollingEnable": "false", "brokerIP1": "192.0.2.7"}
    )
    assert changed == {"maxMessageSize": "100", "longPollingEnable": "false", "brokerIP1": "192.0.2.7"}
    assert settings.store.max_message_size == 100
    assert settings.broker.long_polling_enable is False
    assert settings.broker.broker_ip1 == "192.0.2.7"


def test_what_stays_the_same_is_not_called_changed(settings):
    assert apply_updates(settings.models, {"maxMessageSize": "4194304", "brokerPermission": "4"}) == {
        "brokerPermission": "4"
    }


def test_listen_port_moves_the_advertised_port_only(settings):
    assert apply_updates(settings.models, {"listenPort": "30999"}) == {"listenPort": "30999"}
    assert settings.broker.listen_port == 30999
    assert settings.transport.listen_port == 10911
    assert "listenPort=30999\n" in config_text(settings.models)


@pytest.mark.parametrize(
    ("updates", "error", "words"),
    [
        ({"maxMessageSize": "x"}, ConfigError, "maxMessageSize=x is not valid: it takes a whole number from 1 to"),
        ({"autoCreateTopicEnable": "1"}, ConfigError, "autoCreateTopicEnable=1 is not valid: it takes true or false"),
        ({"listenPort": "0"}, ConfigError, "listenPort=0 is not valid: it takes a whole number from 1 to 65535"),
        ({"listenPort": ""}, ConfigError, "listenPort= is not valid"),
        ({"storePathRootDir": "/x"}, NotChangeableError, "storePathRootDir cannot be changed at run time"),
        (
            {"messageStorePlugIn": "X"},
            NotChangeableError,
            "messageStorePlugIn=X is rejected",
        ),
        ({"storeType": "default"}, NotChangeableError, "storeType cannot be changed at run time"),
        ({"brokerConfigPath": "/x"}, NotChangeableError, "brokerConfigPath cannot be changed at run time"),
        ({"rmqAddressServerDomain": "x"}, NotChangeableError, "rmqAddressServerDomain cannot be changed"),
        ({"maxMesageSize": "1"}, ConfigError, "unknown setting maxMesageSize; did you mean maxMessageSize?"),
    ],
)
def test_one_wrong_key_changes_nothing(settings, updates, error, words):
    before = config_text(settings.models)
    with pytest.raises(ConfigError) as caught:
        apply_updates(settings.models, {"brokerPermission": "4", **updates})
    assert words in str(caught.value)
    assert type(caught.value) is error
    assert config_text(settings.models) == before


def test_nothing_that_names_a_path_a_class_or_a_command_is_hot():
    fields = [item for model in MODELS for item in fields_by_name(model).items()]
    hot = {name: field for name, (_, field) in fields if trait_of(field).hot}
    for name in [name for name, field in hot.items() if type_word(field) == "text"]:
        assert not any(word in name.lower() for word in ("path", "file", "dir", "plugin", "class", "domain", "home"))
    assert {"brokerIP1", "listenPort", "brokerPermission"} <= hot.keys()


def test_the_name_server_has_a_list_of_its_own():
    settings = load_namesrv_settings()
    assert apply_updates(settings.models, {"orderMessageEnable": "true"}) == {"orderMessageEnable": "true"}
    assert settings.namesrv.order_message_enable is True
    assert "brokerPermission" not in hot_names(settings.models)
    for name in ("kvConfigPath", "configStorePath", "listenPort", "brokerPermission"):
        with pytest.raises(NotChangeableError):
            apply_updates(settings.models, {name: "1"})


def test_update_bodies():
    assert parse_updates(b"recallMessageEnable=true\n") == {"recallMessageEnable": "true"}
    for body in (b"", b"# nothing\n"):
        with pytest.raises(ConfigError, match="the body names no setting"):
            parse_updates(body)
    with pytest.raises(ConfigError, match=r"^line:1: "):
        parse_updates(b"a=\xff\n")


def test_the_text_of_all_settings_reads_back_and_is_sorted(settings):
    entries = parse_properties(config_text(settings.models), "body")
    names = [entry.key for entry in entries]
    assert names == sorted(set(names))
    assert set(names) == {name for model in settings.models for name in fields_by_name(type(model))}
    assert {entry.key: entry.value for entry in entries}["autoCreateTopicEnable"] == "true"


def test_saved_changes_are_there_after_a_restart(tmp_path):
    file = tmp_path / "b.conf"
    file.write_text("# mine\nbrokerName=a\nmaxMessageSize=1\n")
    settings = load_broker_settings(file, None, {})
    updates = {"maxMessageSize": "100", "brokerIP1": "2001:db8::7", "regionId": "Süd = 1"}
    save_changes(settings.persist_path, apply_updates(settings.models, updates))
    again = load_broker_settings(file, None, {})
    assert again.models == settings.models
    assert again.broker.region_id == "Süd = 1"
    assert file.read_text().startswith("# mine\nbrokerName=a\nmaxMessageSize=100\n")


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


def test_the_black_list_keeps_settings_from_changes(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("configBlackList=brokerPermission;traceOn\n")
    settings = load_broker_settings(file, None, {})

    with pytest.raises(NotChangeableError, match="traceOn cannot be changed at run time: configBlackList names it"):
        apply_updates(settings.models, {"maxMessageSize": "100", "traceOn": "false"})
    assert settings.store.max_message_size == 4_194_304
    with pytest.raises(NotChangeableError, match="configBlackList cannot be changed at run time"):
        apply_updates(settings.models, {"configBlackList": ""})


def test_the_name_server_has_a_black_list(tmp_path):
    file = tmp_path / "namesrv.conf"
    file.write_text("configBlackList=orderMessageEnable\n")

    with pytest.raises(NotChangeableError, match="configBlackList names it"):
        apply_updates(load_namesrv_settings(file).models, {"orderMessageEnable": "true"})
