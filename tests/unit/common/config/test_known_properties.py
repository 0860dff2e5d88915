"""The packaged list of RocketMQ's properties."""

from pathlib import Path

import pytest

from rocketbroker.common.config import BrokerConfig, NamesrvConfig, TransportConfig, known_properties
from rocketbroker.common.config.current_settings import NotChangeableError, apply_updates
from rocketbroker.common.config.known_properties import refusal
from rocketbroker.common.config.load import load_broker_settings, load_namesrv_settings
from rocketbroker.common.config.metrics_settings import OtlpTarget, parse_headers, parse_target
from rocketbroker.common.config.properties_file import load_properties
from rocketbroker.common.errors import ConfigError

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


LOADERS = [load_broker_settings, load_namesrv_settings]
ON = [("aclEnable", "true"), ("aclEnable", " TRUE "), ("aclEnable", "yes")]
OTHER_TLS = [("useTLS", "true"), ("tlsEnable", "true"), ("enableTls", "yes")]
OFF = [
    ("aclEnable", "false"),
    ("aclEnable", ""),
    ("useTLS", "false"),
    ("tlsEnable", "false"),
]


STORE_AND_ROLE = [
    ("storeType", "defaultRocksDB"),
    ("configManagerVersion", "v2"),
    ("enableDLegerCommitLog", "true"),
    ("enableControllerMode", "TRUE"),
    ("duplicationEnable", "true"),
    ("messageStorePlugIn", "org.example.Store"),
    ("enableLmq", "true"),
    ("enableMultiDispatch", "true"),
    ("timerRocksDBEnable", "true"),
    ("transRocksDBEnable", "true"),
    ("popConsumerKVServiceEnable", "true"),
    ("transferMetadataJsonToRocksdb", "true"),
    ("transferOffsetJsonToRocksdb", "true"),
    ("rocksdbCQDoubleWriteEnable", "true"),
    ("indexRocksDBEnable", "true"),
    ("readOnlyCommitLogStorePaths", "/a,/b"),
    ("enableControllerInNamesrv", "true"),
    ("inBrokerContainer", "true"),
    ("isInBrokerContainer", "true"),
    ("isBrokerContainer", "true"),
    ("socksProxyConfig", '{"*"={"addr"="192.0.2.1:1080"}}'),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.properties"


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize(("name", "value"), ON)
def test_no_server_starts_where_one_is_on(load, file: Path, name: str, value: str):
    file.write_text(f"{name}={value}\n")

    with pytest.raises(ConfigError) as caught:
        load(file)

    (line,) = str(caught.value).splitlines()
    assert f"{file}:1: {name}={value.lstrip()} is rejected: this version has no " in line
    assert "remove the setting, and write authenticationEnabled=true, authorizationEnabled=true" in line


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize(("name", "value"), OTHER_TLS)
def test_other_names_of_tls_lead_to_the_right_ones(load, file: Path, name: str, value: str):
    file.write_text(f"{name}={value}\n")

    with pytest.raises(ConfigError, match=r"is rejected: write tls\.enable=true to open connections over TLS"):
        load(file)


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize(("name", "value"), OFF)
def test_one_that_is_off_is_no_warning(load, file: Path, name: str, value: str):
    file.write_text(f"{name}={value}\n")

    settings = load(file)

    assert settings.not_acted_on[name] == value
    assert settings.warnings == ()
    (note,) = settings.notes
    assert f"({name})" in note


@pytest.mark.parametrize(("name", "value"), ON)
def test_none_can_be_turned_on_at_run_time(name: str, value: str):
    models = (BrokerConfig(broker_ip1="127.0.0.1"), NamesrvConfig(), TransportConfig())

    with pytest.raises(NotChangeableError, match="is rejected: this version has no "):
        apply_updates(models, {"traceOn": "false", name: value})
    assert models[0].trace_on is True


@pytest.mark.parametrize(("name", "value"), STORE_AND_ROLE)
def test_no_broker_starts_with_another_store_or_role_than_its_file_says(file: Path, name: str, value: str):
    file.write_text(f"{name}={value}\n")

    with pytest.raises(ConfigError) as caught:
        load_broker_settings(file)

    (line,) = str(caught.value).splitlines()
    assert f"{file}:1: {name}={value} is rejected: this version has no " in line
    assert "; remove the setting, and " in line


@pytest.mark.parametrize(("name", "value"), STORE_AND_ROLE)
def test_none_of_these_can_be_set_at_run_time(name: str, value: str):
    with pytest.raises(NotChangeableError, match="is rejected: this version has no "):
        apply_updates((BrokerConfig(broker_ip1="127.0.0.1"),), {name: value})


@pytest.mark.parametrize("name", [name for name, _ in STORE_AND_ROLE])
def test_rocketmqs_defaults_are_no_warnings(file: Path, name: str):
    known = known_properties.find(name)
    assert known is not None
    file.write_text(f"{name}={known.default or ''}\n")

    settings = load_broker_settings(file)

    assert settings.warnings == ()
    assert settings.not_acted_on[name] == (known.default or "")


def test_the_shipped_files_have_none():
    paths = [path for path in (Path(__file__).parents[4] / "conf").rglob("*") if path.is_file()]
    entries = [entry for path in paths for entry in load_properties(path)]

    assert len(entries) > len(paths) > 5
    assert [entry for entry in entries if refusal(entry.key, entry.value)] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metricsExporterType", "PROMETHEUS"),
        ("metricsLabel", "a=b"),
        ("metricsLabel", "a-b:c"),
        ("metricsGrpcExporterTarget", "ftp://collector.example:4317"),
        ("metricsGrpcExporterTarget", "http://collector.example:4317/v1/metrics"),
        ("metricsGrpcExporterHeader", "api-key"),
        ("metricsGrpcExporterHeader", "token-bin:x"),
        ("metricGrpcExporterIntervalInMills", "0"),
    ],
)
def test_metrics_take_no_other_values(file: Path, name: str, value: str):
    file.write_text(f"{name}={value}\n")
    shown = "******" if name == "metricsGrpcExporterHeader" else value
    with pytest.raises(ConfigError) as caught:
        load_broker_settings(file)
    assert f"{name}={shown} is not valid: it takes" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("http://collector.example:4317", OtlpTarget("collector.example:4317", is_tls=False)),
        ("https://collector.example:4317/", OtlpTarget("collector.example:4317", is_tls=True)),
        ("[2001:db8::1]:4317", OtlpTarget("[2001:db8::1]:4317", is_tls=True)),
    ],
)
def test_a_collector_without_plain_text_in_its_address_takes_tls(value: str, target: OtlpTarget):
    assert parse_target(value) == target


def test_headers_of_a_collector_have_small_letters():
    assert parse_headers("Authorization:Bearer a:b, tenant:7") == {"authorization": "Bearer a:b", "tenant": "7"}
