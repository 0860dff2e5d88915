"""Settings of the name server (org.apache.rocketmq.common.namesrv.NamesrvConfig)."""

from pathlib import Path

from rocketbroker.common.config.broker_config import AddressList
from rocketbroker.common.config.fields import (
    BIND_WORDS,
    BindAddress,
    ConfigModel,
    FilePath,
    Flag,
    Trait,
    Whole,
    setting,
)

_HOT = Trait(hot=True)


def _below_home(name: str) -> str:
    return str(Path.home() / "namesrv" / name)


class NamesrvConfig(ConfigModel):
    """Routes, limits and address server of the name server."""

    config_store_path: FilePath = setting(
        "configStorePath",
        lambda: _below_home("namesrv.properties"),
        "File that stores changes at run time; with -c it is that file.",
        Trait(takes="a path", shown_default="$HOME/namesrv/namesrv.properties"),
    )
    kv_config_path: FilePath = setting(
        "kvConfigPath",
        lambda: _below_home("kvConfig.json"),
        "File that stores the key-value configuration.",
        Trait(takes="a path", shown_default="$HOME/namesrv/kvConfig.json"),
    )
    scan_not_active_broker_interval: Whole = setting(
        "scanNotActiveBrokerInterval",
        5_000,
        "Interval of the scan for silent brokers.",
        Trait(unit="ms"),
        low=100,
        high=60_000,
    )
    order_message_enable: Flag = setting(
        "orderMessageEnable", False, "Include the order configuration of topics in routes.", _HOT
    )
    return_order_topic_config_to_broker: Flag = setting(
        "returnOrderTopicConfigToBroker", True, "Answer a registration with the ORDER_TOPIC_CONFIG table.", _HOT
    )
    enable_all_topic_list: Flag = setting("enableAllTopicList", True, "Serve GET_ALL_TOPIC_LIST_FROM_NAMESERVER.", _HOT)
    enable_topic_list: Flag = setting(
        "enableTopicList", True, "Serve the lists of topics by cluster and of unit topics.", _HOT
    )
    delete_topic_with_broker_registration: Flag = setting(
        "deleteTopicWithBrokerRegistration",
        False,
        "Drop a topic's queues on a broker when its registration no longer names the topic.",
        _HOT,
    )
    support_acting_master: Flag = setting(
        "supportActingMaster",
        False,
        "Show clients the slave with the smallest id as read-only master of a broker that lost its master.",
        _HOT,
    )
    notify_min_broker_id_changed: Flag = setting(
        "notifyMinBrokerIdChanged",
        False,
        "Notify the brokers of one name when the smallest id among them changes.",
        _HOT,
    )
    max_brokers: Whole = setting(
        "maxBrokers",
        1_000,
        "Maximum number of registered brokers, slaves included.",
        Trait(hot=True, own=True),
        low=1,
        high=100_000,
    )
    max_topics_per_broker: Whole = setting(
        "maxTopicsPerBroker",
        100_000,
        "Maximum number of topics that a broker can register.",
        Trait(hot=True, own=True),
        low=10,
        high=1_000_000,
    )
    max_topic_queue_entries: Whole = setting(
        "maxTopicQueueEntries",
        1_000_000,
        "Maximum number of topics of all brokers; a topic counts once for each broker name that has it.",
        Trait(hot=True, own=True),
        low=10,
        high=10_000_000,
    )
    max_filter_servers_per_broker: Whole = setting(
        "maxFilterServersPerBroker",
        16,
        "Maximum number of filter servers in a registration; RocketMQ has not used them since 4.4.",
        Trait(hot=True, own=True),
        low=0,
        high=1_000,
    )
    max_registration_size: Whole = setting(
        "maxRegistrationSize",
        32 << 20,
        "Maximum size of the body of a registration, after decompression (compressedRegister).",
        Trait(unit="bytes", hot=True, own=True),
        low=65_536,
        high=256 << 20,
    )
    max_waiting_registration_size: Whole = setting(
        "maxWaitingRegistrationSize",
        128 << 20,
        "Maximum number of bytes of large registrations that wait to be decoded one after the other.",
        Trait(unit="bytes", hot=True, own=True),
        low=16 << 20,
        high=4 << 30,
    )
    max_kv_value_size: Whole = setting(
        "maxKvValueSize",
        65_536,
        "Maximum size of a value in PUT_KV_CONFIG, as encoded in JSON.",
        Trait(unit="bytes", hot=True, own=True),
        low=256,
        high=1 << 20,
    )
    max_kv_entries_per_namespace: Whole = setting(
        "maxKvEntriesPerNamespace",
        50_000,
        "Maximum number of keys in one namespace of the key-value configuration.",
        Trait(hot=True, own=True),
        low=1,
        high=1_000_000,
    )
    max_kv_entries: Whole = setting(
        "maxKvEntries",
        100_000,
        "Maximum number of keys and namespaces in the key-value configuration together.",
        Trait(hot=True, own=True),
        low=2,
        high=1_000_000,
    )
    max_kv_namespace_size: Whole = setting(
        "maxKvNamespaceSize",
        4 << 20,
        "Maximum size of a namespace, and of ORDER_TOPIC_CONFIG in the answer to a registration.",
        Trait(unit="bytes", hot=True, own=True),
        low=4_096,
        high=12 << 20,
    )
    max_kv_config_size: Whole = setting(
        "maxKvConfigSize",
        8 << 20,
        "Maximum size of the key-value configuration, whose file is rewritten at each change.",
        Trait(unit="bytes", hot=True, own=True),
        low=4_096,
        high=64 << 20,
    )
    need_wait_for_service: Flag = setting(
        "needWaitForService", False, "Reject route requests for waitSecondsForService after the start.", _HOT
    )
    wait_seconds_for_service: Whole = setting(
        "waitSecondsForService",
        45,
        "Time for brokers to register before routes are served if needWaitForService=true.",
        Trait(unit="s", hot=True),
        low=0,
        high=3_600,
    )
    address_server_enable: Flag = setting(
        "addressServerEnable",
        False,
        "Serve /rocketmq/nsaddr over HTTP, where clients look for name servers; needs the extra http.",
        Trait(own=True),
    )
    address_server_port: Whole = setting(
        "addressServerPort", 8080, "HTTP port of the address server.", Trait(own=True), low=0, high=65_535
    )
    address_server_bind_address: BindAddress = setting(
        "addressServerBindAddress",
        "0.0.0.0",  # noqa: S104
        "Address that the address server listens on.",
        Trait(own=True, takes=BIND_WORDS),
    )
    address_server_name_servers: AddressList = setting(
        "addressServerNameServers",
        "",
        "Answer of the address server; empty means this name server's own address and port.",
        Trait(own=True, takes="host:port, several joined by ';'"),
    )
