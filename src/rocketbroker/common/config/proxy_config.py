"""Settings of the gRPC port (org.apache.rocketmq.proxy.config.ProxyConfig), from ``rmq-proxy.json``."""

from typing import Final

from rocketbroker.common.config.broker_config import AddressList
from rocketbroker.common.config.fields import (
    DAY_MS,
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
    """Port, certificate and limits of the gRPC front."""

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


def grpc_properties(port: int) -> dict[str, str]:
    """Return the settings of a broker that serves the 5.x SDKs; port 0 picks a free one."""
    return {"grpcServerEnable": "true", "grpcServerPort": str(port)}
