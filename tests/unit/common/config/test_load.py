"""Files, `-n`, environment and defaults; what is wrong is said with its place."""

from pathlib import Path

import pytest

from rocketbroker.common.config.hosts import local_address
from rocketbroker.common.config.load import load_broker_settings, load_namesrv_settings
from rocketbroker.common.config.unserved import EXPECTED
from rocketbroker.common.errors import ConfigError

MQADMIN = Path(__file__).parents[3] / "golden" / "mqadmin"
CONF = Path(__file__).parents[4] / "conf"
SYNC_MASTERS = ("2m-2s-sync/broker-a.properties", "2m-2s-sync/broker-b.properties")
SLAVES = tuple(f"2m-2s-{kind}/broker-{name}-s.properties" for kind in ("async", "sync") for name in "ab")
RUNNING = (
    "broker.conf",
    "2m-noslave/broker-a.properties",
    "2m-noslave/broker-b.properties",
    "2m-2s-async/broker-a.properties",
    "2m-2s-async/broker-b.properties",
    *SYNC_MASTERS,
    *SLAVES,
)


@pytest.fixture
def conf(tmp_path):
    def write(text):
        file = tmp_path / "b.conf"
        file.write_text(text)
        return file

    return write


def load(path=None, namesrv_addr=None, environment=None):
    return load_broker_settings(path, namesrv_addr, environment or {})


def test_every_shipped_file_is_spoken_for():
    shipped = {str(path.relative_to(CONF)) for path in CONF.rglob("*") if path.is_file()}
    assert shipped == {*RUNNING, "namesrv.properties"}


@pytest.mark.parametrize("name", RUNNING)
def test_shipped_brokers_load_and_are_acted_on(name):
    settings = load(CONF / name)
    assert settings.broker.broker_name == ("broker-b" if "broker-b" in name else "broker-a")
    assert settings.store.flush_disk_type == "ASYNC_FLUSH"
    role = "SLAVE" if name in SLAVES else "SYNC_MASTER" if name in SYNC_MASTERS else "ASYNC_MASTER"
    assert (settings.store.broker_role, settings.broker.broker_id) == (role, int(role == "SLAVE"))
    assert settings.store.in_sync_replicas == (2 if role == "SYNC_MASTER" else 1)
    assert (settings.store.delete_when, settings.store.file_reserved_time) == ("04", 48)
    assert (settings.warnings, settings.not_acted_on) == ((), {})


def test_the_shipped_name_server_file_loads():
    settings = load_namesrv_settings(CONF / "namesrv.properties")
    assert settings.transport.listen_port == 9876
    assert settings.warnings == ()
    assert settings.persist_path == CONF / "namesrv.properties"


def test_ports_without_a_file():
    broker = load()
    assert (broker.transport.listen_port, broker.broker.listen_port, broker.store.ha_listen_port) == (
        10911,
        10911,
        10912,
    )
    assert load_namesrv_settings().transport.listen_port == 9876


def test_one_listen_port_sets_the_bound_and_the_registered_port(conf):
    settings = load(conf("listenPort=30911\n"))
    assert settings.transport.listen_port == settings.broker.listen_port == 30911
    assert settings.store.ha_listen_port == 30912
    assert load(conf("listenPort=30911\nhaListenPort=7\n")).store.ha_listen_port == 7
    assert load(conf("listenPort=0\n")).store.ha_listen_port == 0


def test_name_servers_come_from_n_then_the_file_then_the_environment(conf):
    file = conf("namesrvAddr=file:1\n")
    environment = {"NAMESRV_ADDR": "env:1"}
    assert load(None, None, {}).broker.namesrv_addr == ""
    assert load(None, None, environment).broker.namesrv_addr == "env:1"
    assert load(file, None, environment).broker.namesrv_addr == "file:1"
    assert load(file, "n:1", environment).broker.namesrv_addr == "n:1"


def test_errors_name_where_a_wrong_address_came_from():
    with pytest.raises(ConfigError, match=r"^-n: namesrvAddr=x is not valid: it takes host:port"):
        load(None, "x")
    with pytest.raises(ConfigError, match=r"^environment variable NAMESRV_ADDR: namesrvAddr=x "):
        load(None, None, {"NAMESRV_ADDR": "x"})


def test_a_later_line_wins(conf):
    assert load(conf("brokerName=a\nbrokerName=b\n")).broker.broker_name == "b"


def test_everything_wrong_is_said_in_the_order_of_the_file(conf):
    file = conf("brokerNmae=x\nlistenPort=70000\nautoCreateTopicEnable=yes\nflushDiskType=FOO\n")
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value).splitlines() == [
        f"{file}:1: unknown setting brokerNmae; did you mean brokerName?",
        f"{file}:2: listenPort=70000 is not valid: it takes a whole number from 0 to 65535",
        f"{file}:3: autoCreateTopicEnable=yes is not valid: it takes true or false",
        f"{file}:4: flushDiskType=FOO is not valid: it takes ASYNC_FLUSH or SYNC_FLUSH",
    ]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("brokerId=1\n", 1, "brokerId=1 is rejected: a master's brokerId is 0"),
        ("brokerName=a\nbrokerRole=SLAVE\n", 2, "brokerId=0 is rejected: a master's brokerId is 0, a slave's is 1"),
        ("brokerId=0\nbrokerRole=SLAVE\n", 2, "brokerId=0 is rejected: a master's brokerId is 0, a slave's is 1"),
        ("brokerId=-1\n", 1, "brokerId=-1 is not valid: it takes a whole number from 0 to"),
    ],
)
def test_an_id_of_another_role_is_rejected(conf, text: str, line: int, said: str):
    with pytest.raises(ConfigError) as caught:
        load(conf(text))
    assert f"b.conf:{line}: {said}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_of_other_versions_and_processes_are_warnings(conf):
    file = conf("mapedFileSizeCommitLog=1\nsendMessageThreadPoolNums=4\nkvConfigPath=/x\naddressServerPort=1\n")
    assert load(file).warnings == (
        f"{file}:1: mapedFileSizeCommitLog=1 has no effect in this version: " + EXPECTED["mapedFileSizeCommitLog"],
        f"{file}:3: kvConfigPath has no effect in this process",
        f"{file}:4: addressServerPort has no effect in this process",
    )
    assert load(file).notes == (
        "1 setting of RocketMQ changes nothing here (sendMessageThreadPoolNums): docs/coming-from-rocketmq/settings.md",
    )


def test_settings_without_a_counterpart_are_one_line_of_three_names(conf):
    names = ["sendMessageThreadPoolNums", "warmMapedFileEnable", "useEpollNativeSelector", "dLegerPeers"]
    settings = load(conf("".join(f"{name}=1\n" for name in names)))

    assert settings.warnings == ()
    (note,) = settings.notes
    assert f"4 settings of RocketMQ change nothing here ({', '.join(names[:3])}, ...): docs/" in note


@pytest.mark.parametrize(
    ("value", "warns"), [("true", True), ("false", False), (" FALSE", False), ("", True), ("no", True)]
)
def test_a_setting_that_may_be_counted_on_is_a_warning_unless_it_has_its_default(conf, value: str, warns: bool):
    settings = load(conf(f"coldDataFlowControlEnable={value}\n"))

    assert (len(settings.warnings), len(settings.notes)) == ((1, 0) if warns else (0, 1))
    assert all("consumers that read old messages are not slowed down" in line for line in settings.warnings)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("brokerRole=SYNC_MASTER\n", "brokerRole=SYNC_MASTER with inSyncReplicas=1, the default, waits for no slave"),
        ("haMasterAddress=192.0.2.1:10912\n", "haMasterAddress has no effect with brokerRole=ASYNC_MASTER"),
        (
            "brokerRole=SLAVE\nbrokerId=1\nenableSlaveActingMaster=true\n",
            "enableSlaveActingMaster=true with slaveReadEnable=false: this slave serves no pulls",
        ),
    ],
)
def test_settings_that_the_role_leaves_without_effect_are_warnings(conf, text: str, warning: str):
    (said,) = load(conf(text)).warnings
    assert said.startswith(warning)


def test_settings_of_their_role_are_no_warnings(conf):
    assert load(conf("brokerRole=SYNC_MASTER\ninSyncReplicas=2\n")).warnings == ()
    adapts = "brokerRole=SYNC_MASTER\nenableSlaveActingMaster=true\nenableAutoInSyncReplicas=true\n"
    assert load(conf(adapts + "minInSyncReplicas=2\n")).warnings == ()
    assert load(conf("brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=192.0.2.1:10912\n")).warnings == ()


def test_what_is_not_done_is_not_claimed(conf):
    settings = load(conf("enableCalcFilterBitMap=true\n"))
    assert settings.not_acted_on == {"enableCalcFilterBitMap": "true"}
    (note,) = settings.notes
    assert "(enableCalcFilterBitMap)" in note


def test_changes_go_to_the_file_given_or_beside_the_state(conf, tmp_path):
    file = conf(f"storePathRootDir={tmp_path}\n")
    assert load(file).persist_path == file
    assert load().persist_path == load().store.config_dir / "broker.properties"
    assert load_namesrv_settings().persist_path.name == "namesrv.properties"


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the settings file: No such file") as caught:
        load(tmp_path / "none")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["127.0.0.1", "2001:db8::1"])
def test_addresses_are_registered_that_are_listened_on(conf, address: str):
    broker = load_broker_settings(conf(f"bindAddress={address}")).broker
    assert (broker.broker_ip1, broker.broker_ip2) == (address, address)

    broker = load_broker_settings(conf(f"bindAddress={address}\nbrokerIP1=192.0.2.1\nbrokerIP2=192.0.2.2")).broker
    assert (broker.broker_ip1, broker.broker_ip2) == ("192.0.2.1", "192.0.2.2")


@pytest.mark.parametrize("address", ["", "0.0.0.0", "::", "localhost"])
def test_the_hosts_address_is_registered_if_all_are_listened_on(conf, address: str):
    broker = load_broker_settings(conf(f"bindAddress={address}")).broker
    assert (broker.broker_ip1, broker.broker_ip2) == (local_address(), local_address())


def test_replicas_adapt_only_where_a_slave_may_act_as_master(conf):
    text = "brokerRole=SYNC_MASTER\ninSyncReplicas=2\nenableAutoInSyncReplicas=true\n"
    settings = load(conf(text))
    assert settings.store.enable_auto_in_sync_replicas is False
    (warning,) = settings.warnings
    assert "without enableSlaveActingMaster=true" in warning

    settings = load(conf(text + "enableSlaveActingMaster=true\n"))
    assert settings.store.enable_auto_in_sync_replicas is True
    assert settings.warnings == ()


def test_the_settings_that_apaches_broker_prints_are_taken_without_a_warning(conf):
    lines = (MQADMIN / "mqbroker-p.txt").read_text().splitlines()
    settings = load(conf("\n".join(line for line in lines if "=" in line)))

    assert settings.warnings == ()
    (note,) = settings.notes
    assert int(note.partition(" ")[0]) == len(settings.not_acted_on) > 100


def test_a_setting_of_another_process_is_a_warning_unless_it_has_its_default(conf):
    assert load(conf("brokerConfigPath=\norderMessageEnable=false\n")).warnings == ()
    (warning,) = load(conf("orderMessageEnable=true\n")).warnings
    assert "orderMessageEnable has no effect in this process" in warning
