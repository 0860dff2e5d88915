"""Settings of the gRPC port (org.apache.rocketmq.proxy.config.ProxyConfig), from ``rmq-proxy.json``."""

from typing import Final

from rocketbroker.common.config.broker_config import AddressList
from rocketbroker.common.config.fields import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    PORT_MAX,
    ConfigModel,
    Flag,
    Text,
    Trait,
    Whole,
    millis,
    setting,
    size,
    whole,
)

GRPC_PORT: Final = 8081
_SECOND: Final = 1_000


class ProxyConfig(ConfigModel):
    """Port, limits and times of the gRPC front."""

    proxy_mode: Text = setting(
        "CLUSTER",
        "CLUSTER to serve the brokers that name servers know, LOCAL to run a broker in this process.",
        Trait(takes="CLUSTER or LOCAL"),
    )
    namesrv_addr: AddressList = setting("", "Name servers of the brokers, `host:port` joined by `;`.")
    grpc_server_port: Whole = setting(GRPC_PORT, "Port of the SDKs, 0 for a free one.", whole(0, PORT_MAX))
    local_serve_addr: Text = setting(
        "", "Address in routes: what clients connect to. By default the address that brokers register.", Trait()
    )
    broker_config_path: Text = setting("", "Properties file of the broker in LOCAL mode.")
    grpc_max_inbound_message_size: Whole = setting(
        130 * 1024 * 1024, "Maximum size of a request.", size(1 << 20, 1 << 30)
    )
    grpc_max_concurrent_calls_per_connection: Whole = setting(
        100_000, "Maximum number of calls under way on one connection.", whole(1, 10_000_000)
    )
    grpc_client_idle_time_mills: Whole = setting(
        120_000, "Time without a call after which a connection is closed.", millis(_SECOND, DAY_MS)
    )
    tls_test_mode_enable: Flag = setting(
        True, "Make a self-signed certificate at the start; otherwise tlsCertPath and tlsKeyPath are read."
    )
    tls_cert_path: Text = setting("", "File of the certificate chain in PEM.")
    tls_key_path: Text = setting("", "File of the private key in PEM.")
    tls_key_password: Text = setting("", "Password of the private key.")
    max_message_size: Whole = setting(4 << 20, "Maximum size of a body.", size(1, 1 << 30))
    max_user_property_size: Whole = setting(16 * 1024, "Maximum size of the properties.", size(1, 32 * 1024))
    user_property_max_num: Whole = setting(128, "Maximum number of user properties.", whole(1, 10_000))
    max_message_group_size: Whole = setting(64, "Maximum length of a message group.", size(1, 1024))
    enable_topic_message_type_check: Flag = setting(
        True, "Reject messages whose type is not that of their topic (attribute message.type)."
    )
    max_delay_time_mills: Whole = setting(DAY_MS, "Longest delay of a message.", millis(0, 366 * DAY_MS))
    max_transaction_recovery_second: Whole = setting(
        3_600, "Longest time until a transaction is checked.", whole(0, 86_400, "s")
    )
    default_invisible_time_mills: Whole = setting(
        60_000, "Invisible time of messages whose handles are renewed.", millis(_SECOND, DAY_MS)
    )
    min_invisible_time_millis_for_recv: Whole = setting(
        10_000, "Least invisible time that a receive may ask for.", millis(0, DAY_MS)
    )
    max_invisible_time_mills: Whole = setting(12 * HOUR_MS, "Longest invisible time.", millis(_SECOND, 366 * DAY_MS))
    grpc_client_consumer_min_long_polling_timeout_millis: Whole = setting(
        5_000, "Least time for which a receive is held.", millis(0, HOUR_MS)
    )
    grpc_client_consumer_max_long_polling_timeout_millis: Whole = setting(
        20_000, "Longest time for which a receive is held.", millis(0, HOUR_MS)
    )
    grpc_client_consumer_long_polling_batch_size: Whole = setting(
        32, "Most messages of a receive, for the settings of consumers.", whole(1, 32)
    )
    grpc_client_producer_max_attempts: Whole = setting(
        3, "Attempts of a send, for the settings of producers.", whole(1, 100)
    )
    grpc_client_producer_backoff_initial_millis: Whole = setting(
        10, "First pause between attempts of a send.", millis(0, MINUTE_MS)
    )
    grpc_client_producer_backoff_max_millis: Whole = setting(
        1_000, "Longest pause between attempts of a send.", millis(0, HOUR_MS)
    )
    grpc_client_producer_backoff_multiplier: Whole = setting(2, "Growth of these pauses.", whole(1, 100))
    enable_proxy_auto_renew: Flag = setting(True, "Renew the handles of a push consumer's messages while it lives.")
    renew_ahead_time_millis: Whole = setting(
        10_000, "Time before the end of the invisible time at which a handle is renewed.", millis(0, HOUR_MS)
    )
    renew_max_time_millis: Whole = setting(
        3 * HOUR_MS, "Time after which a message is not renewed any more.", millis(0, 366 * DAY_MS)
    )
    renew_schedule_period_millis: Whole = setting(5_000, "Interval at which handles are renewed.", millis(100, HOUR_MS))
    invisible_time_millis_when_clear: Whole = setting(
        1_000, "Time after which messages of a client that is gone return.", millis(0, HOUR_MS)
    )
    channel_expired_timeout: Whole = setting(
        120_000, "Time without a call after which a client without telemetry is forgotten.", millis(_SECOND, DAY_MS)
    )


def grpc_properties(port: int) -> dict[str, str]:
    """Return the settings of a broker that serves the 5.x SDKs; port 0 picks a free one."""
    return {"grpcServerEnable": "true", "grpcServerPort": str(port)}
