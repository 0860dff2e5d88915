"""Changes at run time: an allow-list, all or nothing, in place."""

import pytest

from rocketbroker.common.config.describe import fields_by_name, type_word
from rocketbroker.common.config.fields import trait_of
from rocketbroker.common.config.hot_change import (
    NotChangeableError,
    apply_updates,
    config_text,
    hot_names,
    parse_updates,
)
from rocketbroker.common.config.load import load_broker_settings, load_namesrv_settings
from rocketbroker.common.config.properties_file import parse_properties, save_changes
from rocketbroker.common.config.resolve import MODELS
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
