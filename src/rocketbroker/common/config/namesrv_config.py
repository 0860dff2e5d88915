"""Settings of the name server; answers to org.apache.rocketmq.common.namesrv.NamesrvConfig."""

from pathlib import Path

from rocketbroker.common.config.broker_config import AddressList
from rocketbroker.common.config.fields import ConfigModel, FilePath, Flag, Trait, Whole, setting
from rocketbroker.common.config.texts import BIND_WORDS, BindAddress

_HOT = Trait(hot=True)


def _below_home(name: str) -> str:
    return str(Path.home() / "namesrv" / name)


class NamesrvConfig(ConfigModel):
    """How the name server keeps routes and what it tells clients."""

    config_store_path: FilePath = setting(
        "configStorePath",
        lambda: _below_home("namesrv.properties"),
        "File that changes at run time are written to; with -c it is the file given there.",
        Trait(takes="a path", shown_default="$HOME/namesrv/namesrv.properties"),
    )
    kv_config_path: FilePath = setting(
        "kvConfigPath",
        lambda: _below_home("kvConfig.json"),
        "File of the key-value configuration.",
        Trait(takes="a path", shown_default="$HOME/namesrv/kvConfig.json"),
    )
    scan_not_active_broker_interval: Whole = setting(
        "scanNotActiveBrokerInterval",
        5_000,
        "How often silent brokers are looked for.",
        Trait(unit="ms"),
        low=100,
        high=60_000,
    )
    order_message_enable: Flag = setting(
        "orderMessageEnable", False, "Tell clients the order configuration of topics in routes.", _HOT
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
        "notifyMinBrokerIdChanged", False, "Tell brokers of one name when the smallest id among them changes.", _HOT
    )
    max_brokers: Whole = setting(
        "maxBrokers",
        1_000,
        "Most brokers that may be registered, slaves included.",
        Trait(hot=True, own=True),
        low=1,
        high=100_000,
    )
    max_topics_per_broker: Whole = setting(
        "maxTopicsPerBroker",
        100_000,
        "Most topics that a broker may register.",
        Trait(hot=True, own=True),
        low=10,
        high=1_000_000,
    )
    max_topic_queue_entries: Whole = setting(
        "maxTopicQueueEntries",
        1_000_000,
        "Most topics of all brokers together: a topic counts once for each broker name that has it.",
        Trait(hot=True, own=True),
        low=10,
        high=10_000_000,
    )
    max_filter_servers_per_broker: Whole = setting(
        "maxFilterServersPerBroker",
        16,
        "Most filter servers that a broker may name; RocketMQ has had none since 4.4.",
        Trait(hot=True, own=True),
        low=0,
        high=1_000,
    )
    max_registration_size: Whole = setting(
        "maxRegistrationSize",
        32 << 20,
        "Longest body of a registration, after decompression (compressedRegister).",
        Trait(unit="bytes", hot=True, own=True),
        low=65_536,
        high=256 << 20,
    )
    max_waiting_registration_size: Whole = setting(
        "maxWaitingRegistrationSize",
        128 << 20,
        "Most bytes of large registrations that wait to be read, one after the other.",
        Trait(unit="bytes", hot=True, own=True),
        low=16 << 20,
        high=4 << 30,
    )
    max_kv_value_size: Whole = setting(
        "maxKvValueSize",
        65_536,
        "Longest value that PUT_KV_CONFIG takes, as encoded in JSON.",
        Trait(unit="bytes", hot=True, own=True),
        low=256,
        high=1 << 20,
    )
    max_kv_entries_per_namespace: Whole = setting(
        "maxKvEntriesPerNamespace",
        50_000,
        "Most keys of a namespace of the key-value configuration.",
        Trait(hot=True, own=True),
        low=1,
        high=1_000_000,
    )
    max_kv_entries: Whole = setting(
        "maxKvEntries",
        100_000,
        "Most keys and namespaces of the key-value configuration in all.",
        Trait(hot=True, own=True),
        low=2,
        high=1_000_000,
    )
    max_kv_namespace_size: Whole = setting(
        "maxKvNamespaceSize",
        4 << 20,
        "Most bytes of a namespace, and of ORDER_TOPIC_CONFIG in the answer to a registration.",
        Trait(unit="bytes", hot=True, own=True),
        low=4_096,
        high=12 << 20,
    )
    max_kv_config_size: Whole = setting(
        "maxKvConfigSize",
        8 << 20,
        "Most bytes of all namespaces of the key-value configuration, whose file is written anew at each change.",
        Trait(unit="bytes", hot=True, own=True),
        low=4_096,
        high=64 << 20,
    )
    need_wait_for_service: Flag = setting(
        "needWaitForService", False, "Refuse routes for waitSecondsForService after the start.", _HOT
    )
    wait_seconds_for_service: Whole = setting(
        "waitSecondsForService",
        45,
        "How long brokers have to register before routes are given, where needWaitForService is on.",
        Trait(unit="s", hot=True),
        low=0,
        high=3_600,
    )
    address_server_enable: Flag = setting(
        "addressServerEnable",
        False,
        "Serve /rocketmq/nsaddr over HTTP, where clients look for name servers.",
        Trait(own=True),
    )
    address_server_port: Whole = setting(
        "addressServerPort", 8080, "HTTP port of the address server.", Trait(own=True), low=0, high=65_535
    )
    address_server_bind_address: BindAddress = setting(
        "addressServerBindAddress",
        "0.0.0.0",  # noqa: S104
        "Address the address server listens on.",
        Trait(own=True, takes=BIND_WORDS),
    )
    address_server_name_servers: AddressList = setting(
        "addressServerNameServers",
        "",
        "What the address server answers; empty means this name server's own address and port.",
        Trait(own=True, takes="host:port, several joined by ';'"),
    )
