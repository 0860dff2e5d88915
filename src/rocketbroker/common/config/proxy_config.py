"""Settings of the gRPC port (org.apache.rocketmq.proxy.config.ProxyConfig), from ``rmq-proxy.json``."""

from typing import Final

from rocketbroker.common.config.auth_settings import AuthSwitches
from rocketbroker.common.config.broker_config import AddressList
from rocketbroker.common.config.fields import (
    DAY_MS,
    HOUR_MS,
    INT_MAX,
    LINE_WORDS,
    MINUTE_MS,
    PORT_MAX,
    Flag,
    Line,
    Text,
    Trait,
    Whole,
    millis,
    setting,
    size,
    whole,
)
from rocketbroker.common.config.log_settings import LogSettings
from rocketbroker.common.config.metrics_settings import MetricsPortSettings
from rocketbroker.common.config.tls_settings import TlsClientSettings

GRPC_PORT: Final = 8081
_SECOND: Final = 1_000
# protobuf allows no longer message.
_MESSAGE_MAX: Final = INT_MAX


class ProxyConfig(LogSettings, MetricsPortSettings, TlsClientSettings, AuthSwitches):
    """Port, certificate and limits of the gRPC front."""

    proxy_mode: Text = setting(
        "CLUSTER",
        "CLUSTER to serve the brokers that name servers know, LOCAL to run a broker in this process.",
        Trait(takes="CLUSTER or LOCAL"),
    )
    proxy_cluster_name: Line = setting("DefaultCluster", "Name of its cluster in metrics.", Trait(takes=LINE_WORDS))
    proxy_name: Line = setting(
        "", "Its name in metrics.", Trait(takes=LINE_WORDS, shown_default="the name of this machine")
    )
    namesrv_addr: AddressList = setting(
        "", "Name servers of the brokers.", Trait(takes="host:port, several joined by ';'")
    )
    grpc_server_port: Whole = setting(GRPC_PORT, "Port of the SDKs, 0 for a free one.", whole(0, PORT_MAX))
    local_serve_addr: Text = setting(
        "", "Address in routes: what clients connect to. By default the address that brokers register.", Trait()
    )
    use_endpoint_port_from_request: Flag = setting(
        False,
        "In CLUSTER mode without localServeAddr, routes lead clients to the host that they asked at: at the port that "
        "they asked at as well, instead of grpcServerPort. For a load balancer with another port.",
    )
    broker_config_path: Text = setting(
        "", "Properties file of the broker in LOCAL mode.", Trait(shown_default="none: a broker with default settings")
    )
    # -- limits on connections and calls
    grpc_max_inbound_message_size: Whole = setting(
        130 * 1024 * 1024, "Maximum size of a request.", size(1 << 20, 1 << 30)
    )
    grpc_max_concurrent_calls_per_connection: Whole = setting(
        INT_MAX,
        "Maximum number of calls under way on one connection; never more than half of grpcMaxOpenCalls.",
        whole(1, INT_MAX),
    )
    grpc_max_open_calls: Whole = setting(
        50_000,
        "Maximum number of calls and telemetry streams of all connections, and of receives that wait at brokers; each "
        "telemetry stream takes about 30 KiB.",
        whole(1, 10_000_000, own=True),
    )
    max_connections: Whole = setting(
        10_000,
        "Maximum number of connections to a port with TLS; more are closed at once. Each needs three open files "
        "(ulimit -n). A sixteenth of them, at most 256, is kept for this machine.",
        whole(1, 1_000_000, own=True),
    )
    max_connections_per_address: Whole = setting(
        0,
        "Maximum number of connections from one address (for IPv6, from one /64 network). 0 means as many as are free.",
        whole(0, 1_000_000, own=True),
    )
    max_held_bytes: Whole = setting(
        536_870_912,
        "Maximum memory of incomplete requests at a port with TLS. Above it, the connection that holds most is closed. "
        "It must hold a request of grpcMaxInboundMessageSize.",
        size(33_554_432, 1 << 40, own=True),
    )
    grpc_client_idle_time_mills: Whole = setting(
        120_000, "Time without a call after which a connection is closed.", millis(_SECOND, DAY_MS)
    )
    grpc_shutdown_time_seconds: Whole = setting(
        30, "Longest time that a stop waits for calls to end.", whole(1, 3_600, "s")
    )
    # -- messages that are sent
    max_message_size: Whole = setting(
        4 * 1024 * 1024, "Maximum size of a message body, told to producers; 0 for no limit.", size(0, _MESSAGE_MAX)
    )
    enable_message_body_empty_check: Flag = setting(True, "Reject a message without a body.")
    max_user_property_size: Whole = setting(
        16 * 1024, "Maximum size of the properties, tag and keys of a message.", size(1, _MESSAGE_MAX)
    )
    user_property_max_num: Whole = setting(128, "Maximum number of properties of a message.", whole(1, 32_767))
    max_message_group_size: Whole = setting(
        64, "Size that a message group must be below; 0 for no limit.", size(0, _MESSAGE_MAX)
    )
    max_delay_time_mills: Whole = setting(
        DAY_MS, "Maximum time from now to the delivery of a message; 0 for no limit.", millis(0, 40 * 366 * DAY_MS)
    )
    max_transaction_recovery_second: Whole = setting(
        3_600,
        "Maximum time that a producer may set until the outcome of its transaction is asked for; 0 for no limit.",
        whole(0, INT_MAX, "s"),
    )
    enable_topic_message_type_check: Flag = setting(
        True, "Reject a message that is not of the type of its topic (attribute `message.type`)."
    )
    grpc_client_producer_max_attempts: Whole = setting(
        3, "Attempts of producers to send a message, told to them.", whole(1, 1_000)
    )
    grpc_client_producer_backoff_initial_millis: Whole = setting(
        10, "Time before the second attempt, told to producers.", millis(0, HOUR_MS)
    )
    grpc_client_producer_backoff_max_millis: Whole = setting(
        _SECOND, "Longest time before an attempt, told to producers.", millis(0, HOUR_MS)
    )
    grpc_client_producer_backoff_multiplier: Whole = setting(
        2, "Factor by which the time before an attempt grows, told to producers.", whole(1, 1_000)
    )
    # -- messages that are received
    grpc_client_consumer_min_long_polling_timeout_millis: Whole = setting(
        5_000, "Shortest time that a receive waits for messages.", millis(0, HOUR_MS)
    )
    grpc_client_consumer_max_long_polling_timeout_millis: Whole = setting(
        20_000, "Longest time that a receive waits for messages, told to consumers.", millis(0, HOUR_MS)
    )
    long_polling_reserve_time_in_millis: Whole = setting(
        100,
        "Time before the deadline of its call at which a receive without messages is answered.",
        millis(0, MINUTE_MS),
    )
    grpc_client_consumer_long_polling_batch_size: Whole = setting(
        32, "Messages that push consumers ask for at a time, told to them.", whole(1, 32)
    )
    min_invisible_time_mills_for_recv: Whole = setting(
        10_000, "Shortest invisible time that a receive may ask for.", millis(0, DAY_MS)
    )
    max_invisible_time_mills: Whole = setting(
        12 * HOUR_MS, "Longest invisible time that a consumer may ask for.", millis(_SECOND, 365 * DAY_MS)
    )
    enable_proxy_auto_renew: Flag = setting(
        True,
        "Renew the invisible time of messages whose consumer leaves it to the server; otherwise such a consumer must "
        "give one.",
    )
    default_invisible_time_mills: Whole = setting(
        MINUTE_MS, "Invisible time of messages whose consumer leaves it to the server.", millis(_SECOND, HOUR_MS)
    )
    renew_schedule_period_millis: Whole = setting(
        5_000, "Time between two searches for messages to renew.", millis(100, MINUTE_MS)
    )
    renew_ahead_time_millis: Whole = setting(
        10_000, "Time before its invisible time ends at which a message is renewed.", millis(0, HOUR_MS)
    )
    renew_max_time_millis: Whole = setting(
        3 * HOUR_MS, "Time after which a message is renewed no more, and returns to its group.", millis(0, 365 * DAY_MS)
    )
    max_renew_retry_times: Whole = setting(
        3, "Failures in a row after which a message is renewed no more.", whole(1, 1_000)
    )
    invisible_time_millis_when_clear: Whole = setting(
        _SECOND, "Time after which the messages of a client that is gone return to their groups.", millis(0, HOUR_MS)
    )
    # -- brokers of a cluster
    topic_route_service_cache_refresh_seconds: Whole = setting(
        20, "Time after which a route is asked for again.", whole(1, 3_600, "s")
    )
    topic_config_cache_refresh_seconds: Whole = setting(
        20, "Time after which the settings of a topic are asked for again.", whole(1, 3_600, "s")
    )
    subscription_group_config_cache_refresh_seconds: Whole = setting(
        20, "Time after which the settings of a group are asked for again.", whole(1, 3_600, "s")
    )
    transaction_heartbeat_period_second: Whole = setting(
        20, "Time between two heartbeats by which brokers know this proxy as a producer.", whole(1, 120, "s")
    )
    # -- users and policies of the brokers
    user_cache_refresh_seconds: Whole = setting(
        20, "Time after which users and policies are asked for again.", whole(1, 3_600, "s")
    )
    acl_cache_refresh_seconds: Whole = setting(
        20, "The same as userCacheRefreshSeconds; the shorter one counts.", whole(1, 3_600, "s")
    )
    user_cache_expired_seconds: Whole = setting(
        300,
        "Time without an answer of the broker whose users and policies count, after which those of another one do.",
        whole(1, 86_400, "s"),
    )
    accept_unproven_users: Flag = setting(
        False,
        "Take users and policies also from a broker that does not prove to know the inner credentials, as those of "
        "RocketMQ do not. Whoever can answer in its place makes users then: use TLS towards the brokers.",
        Trait(own=True),
    )
    # -- certificate
    tls_test_mode_enable: Flag = setting(
        True, "Make a self-signed certificate at the start; otherwise tlsCertPath and tlsKeyPath are read."
    )
    tls_cert_path: Text = setting("", "File of the certificate chain in PEM.", Trait(shown_default="none: no TLS"))
    tls_key_path: Text = setting("", "File of the private key in PEM.", Trait(shown_default="none: no TLS"))
    tls_key_password: Text = setting("", "Password of the private key.", Trait(secret=True))
    tls_cert_watch_interval_ms: Whole = setting(
        HOUR_MS, "Time between two looks for a new certificate in tlsCertPath and tlsKeyPath.", millis(_SECOND, DAY_MS)
    )
    tls_trust_cert_path: Text = setting(
        "",
        "File of certificates in PEM. If one is named, TLS is for clients alone whose certificate one of them issued; "
        "plain text is for all, unless grpcPlainTextEnable=false.",
        Trait(own=True, shown_default="none: clients need no certificate"),
    )
    grpc_plain_text_enable: Flag = setting(
        True, "Take plain text on a port with TLS; otherwise connections without TLS are closed.", Trait(own=True)
    )


def grpc_properties(port: int) -> dict[str, str]:
    """Return the settings of a broker that serves the 5.x SDKs; port 0 picks a free one."""
    return {"grpcServerEnable": "true", "grpcServerPort": str(port)}
