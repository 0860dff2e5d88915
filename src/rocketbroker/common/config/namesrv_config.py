"""Settings of the name server (org.apache.rocketmq.common.namesrv.NamesrvConfig)."""

from pathlib import Path

from rocketbroker.common.config.broker_config import AddressList
from rocketbroker.common.config.fields import (
    ALL_ADDRESSES,
    BIND_WORDS,
    HOT,
    PORT_MAX,
    BindAddress,
    FilePath,
    Flag,
    Line,
    Trait,
    Whole,
    millis,
    setting,
    size,
    whole,
)
from rocketbroker.common.config.log_settings import LogSettings
from rocketbroker.common.config.metrics_settings import MetricsPortSettings


def _below_home(name: str) -> str:
    return str(Path.home() / "namesrv" / name)


class NamesrvConfig(MetricsPortSettings, LogSettings):
    """Routes, limits and address server of the name server."""

    metrics_prom_exporter_port: Whole = setting(
        5558, "HTTP port of metrics and health, 0 for a free one.", whole(0, PORT_MAX, shown_default="5558")
    )
    config_store_path: FilePath = setting(
        lambda: _below_home("namesrv.properties"),
        "File that stores changes at run time; with -c it is that file.",
        Trait(takes="a path", shown_default="$HOME/namesrv/namesrv.properties"),
    )
    kv_config_path: FilePath = setting(
        lambda: _below_home("kvConfig.json"),
        "File that stores the key-value configuration.",
        Trait(takes="a path", shown_default="$HOME/namesrv/kvConfig.json"),
    )
    scan_not_active_broker_interval: Whole = setting(
        5_000, "Interval of the scan for silent brokers.", millis(100, 60_000)
    )
    order_message_enable: Flag = setting(False, "Include the order configuration of topics in routes.", HOT)
    return_order_topic_config_to_broker: Flag = setting(
        True, "Answer a registration with the ORDER_TOPIC_CONFIG table.", HOT
    )
    enable_all_topic_list: Flag = setting(True, "Serve GET_ALL_TOPIC_LIST_FROM_NAMESERVER.", HOT)
    enable_topic_list: Flag = setting(True, "Serve the lists of topics by cluster and of unit topics.", HOT)
    delete_topic_with_broker_registration: Flag = setting(
        False, "Drop a topic's queues on a broker when its registration no longer names the topic.", HOT
    )
    support_acting_master: Flag = setting(
        False, "Show clients the slave with the smallest id as read-only master of a broker that lost its master.", HOT
    )
    notify_min_broker_id_changed: Flag = setting(
        False, "Notify the brokers of one name when the smallest id among them changes.", HOT
    )
    cluster_name: Line = setting(
        "DefaultCluster",
        "Cluster that requests of administration concern with authorizationEnabled=true: they need rights on "
        "Cluster:<clusterName>. Registrations need those on the cluster that they name.",
        Trait(takes="up to 255 printable characters", shown_default="`DefaultCluster`"),
    )
    authorize_route_reads: Flag = setting(
        False,
        "With authenticationEnabled=true, serve routes to signed requests alone, and with authorizationEnabled=true to "
        "users with a right on the topic.",
        Trait(own=True),
    )
    config_black_list: Line = setting(
        "configBlackList;configStorePath;kvConfigPath",
        "Settings that nobody can change at run time, besides those that are not hot.",
        Trait(
            takes="names joined by ';', at most 255 characters",
            shown_default="`configBlackList;configStorePath;kvConfigPath`",
        ),
    )
    max_brokers: Whole = setting(
        1_000, "Maximum number of registered brokers, slaves included.", whole(1, 100_000, hot=True, own=True)
    )
    max_topics_per_broker: Whole = setting(
        100_000, "Maximum number of topics that a broker can register.", whole(10, 1_000_000, hot=True, own=True)
    )
    max_topic_queue_entries: Whole = setting(
        1_000_000,
        "Maximum number of topics of all brokers; a topic counts once for each broker name that has it.",
        whole(10, 10_000_000, hot=True, own=True),
    )
    max_filter_servers_per_broker: Whole = setting(
        16,
        "Maximum number of filter servers in a registration; RocketMQ has not used them since 4.4.",
        whole(0, 1_000, hot=True, own=True),
    )
    max_registration_size: Whole = setting(
        32 << 20,
        "Maximum size of the body of a registration, after decompression (compressedRegister).",
        size(65_536, 256 << 20, hot=True, own=True),
    )
    max_waiting_registration_size: Whole = setting(
        128 << 20,
        "Maximum number of bytes of large registrations that wait to be decoded one after the other.",
        size(16 << 20, 4 << 30, hot=True, own=True),
    )
    max_kv_value_size: Whole = setting(
        65_536, "Maximum size of a value in PUT_KV_CONFIG, as encoded in JSON.", size(256, 1 << 20, hot=True, own=True)
    )
    max_kv_entries_per_namespace: Whole = setting(
        50_000,
        "Maximum number of keys in one namespace of the key-value configuration.",
        whole(1, 1_000_000, hot=True, own=True),
    )
    max_kv_entries: Whole = setting(
        100_000,
        "Maximum number of keys and namespaces in the key-value configuration together.",
        whole(2, 1_000_000, hot=True, own=True),
    )
    max_kv_namespace_size: Whole = setting(
        4 << 20,
        "Maximum size of a namespace, and of ORDER_TOPIC_CONFIG in the answer to a registration.",
        size(4_096, 12 << 20, hot=True, own=True),
    )
    max_kv_config_size: Whole = setting(
        8 << 20,
        "Maximum size of the key-value configuration, whose file is rewritten at each change.",
        size(4_096, 64 << 20, hot=True, own=True),
    )
    need_wait_for_service: Flag = setting(
        False, "Reject route requests for waitSecondsForService after the start.", HOT
    )
    wait_seconds_for_service: Whole = setting(
        45,
        "Time for brokers to register before routes are served if needWaitForService=true.",
        whole(0, 3_600, "s", hot=True),
    )
    address_server_enable: Flag = setting(
        False,
        "Serve /rocketmq/nsaddr over HTTP, where clients look for name servers; needs the extra http.",
        Trait(own=True),
    )
    address_server_port: Whole = setting(8080, "HTTP port of the address server.", whole(0, PORT_MAX, own=True))
    address_server_bind_address: BindAddress = setting(
        ALL_ADDRESSES, "Address that the address server listens on.", Trait(own=True, takes=BIND_WORDS)
    )
    address_server_name_servers: AddressList = setting(
        "",
        "Answer of the address server; empty means this name server's own address and port.",
        Trait(own=True, takes="host:port, several joined by ';'"),
    )
