"""The models: RocketMQ's names and defaults, strict text, ranges, refusals."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from rocketbroker.common.config import BrokerConfig, MessageStoreConfig, NamesrvConfig, TransportConfig
from rocketbroker.common.config.auth_settings import AuthSettings
from rocketbroker.common.config.fields import bounds, fields_by_name, text_of, trait_of
from rocketbroker.common.config.known_properties import properties_of
from rocketbroker.common.config.load import MODELS
from rocketbroker.common.config.metrics_settings import MetricsPortSettings
from rocketbroker.common.config.proxy_config import ProxyConfig

GOLDEN = Path(__file__).parents[3] / "golden" / "mqadmin"
JAVA_CLASS = {TransportConfig: "NettyServerConfig"}


def recorded_defaults():
    """Java class -> property -> default, as read from fresh objects of RocketMQ 5.5.0."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in (GOLDEN / "config-defaults-5.5.0.properties").read_text().splitlines():
        if line.startswith("# org."):
            current = found.setdefault(line.rpartition(".")[2], {})
        elif "=" in line:
            name, _, value = line.partition("=")
            current[name] = value
    return found


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_names_and_defaults_are_those_of_rocketmq(model):
    recorded = recorded_defaults()[JAVA_CLASS.get(model, model.__name__)]
    auth = {known.name: known.default for known in properties_of("AuthConfig")}
    compared = 0
    for name, (attribute, field) in fields_by_name(model).items():
        if trait_of(field).own or trait_of(field).shown_default is not None:
            continue
        if model is NamesrvConfig and attribute in MetricsPortSettings.model_fields:
            continue  # RocketMQ's broker has them
        if attribute in AuthSettings.model_fields or name == "clusterName":
            # A class of its own in RocketMQ, where most are null.
            assert name == "clusterName" or text_of(field.default) == (auth.get(name) or ""), name
            continue
        if model is ProxyConfig and name == "metricsExportBatchMaxDataPoints":
            continue  # as above
        if name.startswith("rmqAddressServer") or name in {"storePathCommitLog", "haMasterAddress", "namesrvAddr"}:
            continue  # read at the start; null in Java, hence not recorded
        assert text_of(field.default) == recorded[name], name
        compared += 1
    assert compared >= 2


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_setting_survives_the_text_form(model):
    values = {name: text_of(getattr(model(), attribute)) for name, (attribute, _) in fields_by_name(model).items()}
    assert model.model_validate(values) == model()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_number_has_a_range_that_is_enforced(model):
    for name, (_, field) in fields_by_name(model).items():
        if field.annotation is not int or name in ("brokerId", "brokerPermission"):
            continue
        low, high = bounds(field)
        assert low is not None, name
        assert high is not None, name
        for wrong in (low - 1, high + 1):
            with pytest.raises(ValidationError):
                model.model_validate({name: str(wrong)})
        for right in (low, high):
            model.model_validate({name: str(right)})


@pytest.mark.parametrize("text", ["true", "TRUE", " true "])
def test_booleans_read_true_as_rocketmq_does(text):
    assert BrokerConfig.model_validate({"traceTopicEnable": text}).trace_topic_enable is True


@pytest.mark.parametrize("text", ["yes", "1", "on", "", "t"])
def test_booleans_refuse_other_words(text):
    with pytest.raises(ValidationError):
        BrokerConfig.model_validate({"traceTopicEnable": text})


@pytest.mark.parametrize("text", ["1_000", "1.0", "1e3", "", "0x10", "٣", "9" * 30, "true"])
def test_numbers_refuse_other_text(text):
    with pytest.raises(ValidationError):
        MessageStoreConfig.model_validate({"maxMessageSize": text})


def test_a_boolean_is_no_number():
    with pytest.raises(ValidationError):
        MessageStoreConfig.model_validate({"maxMessageSize": True})


@pytest.mark.parametrize(("given", "kept"), [(6_000_000, 6_000_000), (1190, 1200), (20, 20), (21, 40)])
def test_consume_queue_files_hold_whole_entries(given, kept):
    assert MessageStoreConfig(mapped_file_size_consume_queue=given).mapped_file_size_consume_queue == kept


def test_store_paths_follow_the_root_unless_set(tmp_path):
    store = MessageStoreConfig(store_path_root_dir=str(tmp_path), store_path_index="/elsewhere/index")
    assert store.commit_log_dir == tmp_path / "commitlog"
    assert store.consume_queue_dir == tmp_path / "consumequeue"
    assert store.index_dir == Path("/elsewhere/index")
    assert store.checkpoint_path == tmp_path / "checkpoint"
    assert store.abort_path == tmp_path / "abort"
    assert store.config_dir == tmp_path / "config"


@pytest.mark.parametrize("address", ["", "127.0.0.1:10912", "[::1]:10912", "master.example:1"])
def test_an_address_of_a_master_is_taken(address):
    assert MessageStoreConfig.model_validate({"haMasterAddress": address}).ha_master_address == address


@pytest.mark.parametrize("address", ["127.0.0.1", ":10912", "a:0", "a:65536", "a:1;b:2", "a b:1"])
def test_a_text_that_is_no_address_is_rejected(address):
    with pytest.raises(ValidationError):
        MessageStoreConfig.model_validate({"haMasterAddress": address})


@pytest.mark.parametrize(
    "addresses", ["", "127.0.0.1:9876", "a:1;b:65535", "[::1]:9876", "host.example:9876"], ids=repr
)
def test_name_server_addresses(addresses):
    assert BrokerConfig(namesrv_addr=addresses).namesrv_addr == addresses


@pytest.mark.parametrize("addresses", ["127.0.0.1", "a:0", "a:65536", ":9876", "a:1;", "a:1,b:2", "a:x"])
def test_wrong_name_server_addresses(addresses):
    with pytest.raises(ValidationError):
        BrokerConfig(namesrv_addr=addresses)


@pytest.mark.parametrize("name", ["", "../x", "..", "a b", "x" * 128, "a\nb", "ä"])
@pytest.mark.parametrize("field", ["brokerName", "brokerClusterName", "msgTraceTopicName"])
def test_wrong_names(field, name):
    with pytest.raises(ValidationError):
        BrokerConfig.model_validate({field: name})


def test_a_broker_may_be_named_as_a_host():
    assert BrokerConfig(broker_name="node-1.example").broker_name == "node-1.example"


@pytest.mark.parametrize("address", ["", "a b", "a;b", "a/b"])
def test_wrong_addresses(address):
    with pytest.raises(ValidationError):
        BrokerConfig(broker_ip1=address)


@pytest.mark.parametrize("permission", ["1", "3", "7", "8", "-2"])
def test_wrong_permissions(permission):
    with pytest.raises(ValidationError):
        BrokerConfig.model_validate({"brokerPermission": permission})


def test_paths_are_not_empty_and_the_commit_log_has_one():
    with pytest.raises(ValidationError):
        MessageStoreConfig(store_path_root_dir="")
    with pytest.raises(ValidationError):
        NamesrvConfig(kv_config_path="")
    with pytest.raises(ValidationError, match="rejected: this version keeps the commit log in one directory"):
        MessageStoreConfig(store_path_commit_log="/disk1/log,/disk2/log")


@pytest.mark.parametrize("levels", ["", "1s  2s", "1x", "0s", "s", "1s,2s"])
def test_wrong_delay_levels(levels):
    with pytest.raises(ValidationError):
        MessageStoreConfig(message_delay_level=levels)


def test_models_are_frozen_and_refuse_unknown_names():
    with pytest.raises(ValidationError, match="frozen"):
        setattr(BrokerConfig(), "broker_name", "other")  # noqa: B010
    with pytest.raises(ValidationError, match="Extra inputs"):
        NamesrvConfig.model_validate({"brokerName": "x"})


@pytest.mark.parametrize("hours", ["04", "4", "00;23", "02;14;20;"])
def test_delete_when_takes_hours(hours):
    assert MessageStoreConfig.model_validate({"deleteWhen": hours}).delete_when == hours


@pytest.mark.parametrize("hours", ["", "24", "-1", "4,5", "04:00", "4; 5", ";", "never", "\u0664"])
def test_delete_when_refuses_other_text(hours):
    with pytest.raises(ValidationError, match="not hours"):
        MessageStoreConfig.model_validate({"deleteWhen": hours})


@pytest.mark.parametrize(
    ("replicas", "least", "adapts", "in_sync", "needed"),
    [
        (1, 1, False, 8, 0),
        (3, 9, False, 0, 2),
        (3, 1, True, 0, 0),
        (3, 1, True, 1, 1),
        (3, 1, True, 8, 2),
        (3, 2, True, 0, 1),
        (1, 2, True, 0, 1),
        (2, 3, True, 8, 2),
    ],
)
def test_needed_slaves(replicas: int, least: int, adapts: bool, in_sync: int, needed: int):
    config = MessageStoreConfig(
        in_sync_replicas=replicas, min_in_sync_replicas=least, enable_auto_in_sync_replicas=adapts
    )
    assert config.needed_slaves(in_sync) == needed


def test_a_slave_may_act_as_master():
    assert BrokerConfig.model_validate({"enableSlaveActingMaster": "true"}).enable_slave_acting_master
    assert not BrokerConfig().enable_slave_acting_master
