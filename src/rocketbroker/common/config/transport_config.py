"""Settings of a listening remoting server (org.apache.rocketmq.remoting.netty.NettyServerConfig)."""

from typing import Annotated

from pydantic import AfterValidator

from rocketbroker.common.config.auth_settings import AuthSettings
from rocketbroker.common.config.fields import (
    ALL_ADDRESSES,
    BIND_WORDS,
    HOT,
    PORT_MAX,
    BindAddress,
    Flag,
    Text,
    Trait,
    Whole,
    millis,
    setting,
    size,
    whole,
)
from rocketbroker.common.config.hosts import parse_networks
from rocketbroker.common.config.tls_settings import TlsSettings

BROKER_PORT = 10911
NAMESRV_PORT = 9876
FRAME_MAX_LENGTH = 16_777_216
_WHITE_LIST_MAX = 4_096
WHITE_LIST = Trait(
    own=True,
    hot=True,
    takes="IP addresses and networks such as 10.0.0.0/8, joined by ';', at most 4096 characters",
    guards=True,
)


def _check_white_list(value: str) -> str:
    if len(value) > _WHITE_LIST_MAX:
        raise ValueError("too long")
    parse_networks(value)
    return value


WhiteList = Annotated[Text, AfterValidator(_check_white_list)]


class TransportConfig(TlsSettings, AuthSettings):
    """Listening sockets and connection limits. `listen_port` is the bound port; a hot change never moves it."""

    listen_port: Whole = setting(
        BROKER_PORT,
        "TCP port to listen on; 0 lets the system choose one. The broker's VIP port is this one minus 2.",
        whole(0, PORT_MAX, important=True, shown_default="10911 (broker), 9876 (name server)"),
    )
    bind_address: BindAddress = setting(
        ALL_ADDRESSES, "Address to listen on; 0.0.0.0 means all.", Trait(takes=BIND_WORDS)
    )
    protected_mode: Flag = setting(
        True,
        "Admit peers on other machines as clients only, unless a white list has their address; false trusts every "
        "peer, as RocketMQ does.",
        Trait(own=True, hot=True, important=True, guards=True),
    )
    admin_white_list: WhiteList = setting(
        "",
        "Peers on other machines that may send every request in protected mode, such as hosts of administration tools "
        "and dashboards.",
        WHITE_LIST,
    )
    broker_white_list: WhiteList = setting(
        "",
        "Peers that may also send the requests of brokers in protected mode, such as other brokers of the cluster.",
        WHITE_LIST,
    )
    server_channel_max_idle_time_seconds: Whole = setting(
        120,
        "Time after which a connection is closed if it sends nothing, or reads none of the answers waiting for it.",
        whole(1, 86_400, "s"),
    )
    max_connections: Whole = setting(
        10_000,
        "Maximum number of open connections; more are closed at once. Each needs an open file (ulimit -n). A sixteenth "
        "of them, at most 256, is kept for this machine and the addresses of the white lists.",
        whole(1, 1_000_000, own=True),
    )
    max_connections_per_address: Whole = setting(
        0,
        "Maximum number of connections from one address (for IPv6, from one /64 network). 0 means as many as are free: "
        "half of maxConnections for one address, a third for each of two; this machine and the addresses of the white "
        "lists are not limited.",
        whole(0, 1_000_000, own=True),
    )
    reserved_open_files: Whole = setting(
        256,
        "Open files kept free for the store, of the hard limit of the process (ulimit -n); at most a quarter of that "
        "limit.",
        whole(16, 1_000_000, own=True),
    )
    write_buffer_high_water_mark: Whole = setting(
        0,
        "Bytes of unread answers above which no more requests are read from a connection; 0 means 1 MiB.",
        size(0, 1 << 30),
    )
    max_header_length: Whole = setting(
        262_144,
        "Maximum size of a header. It contains a message's properties: 32,767 bytes, each written as up to six.",
        size(65_536, 0xFFFFFF, own=True),
    )
    max_request_body_size: Whole = setting(
        1_048_576,
        "Maximum body size of a request that carries neither messages (maxMessageSize) nor a broker's registration.",
        size(65_536, 1 << 30, own=True),
    )
    max_held_bytes: Whole = setting(
        536_870_912,
        "Maximum memory of all connections for incomplete frames, queued requests and unread answers. Above it, the "
        "connection that holds most for longest is dropped.",
        size(33_554_432, 1 << 40, own=True),
    )
    frame_timeout_seconds: Whole = setting(
        60,
        "Time from the first byte of a frame after which its connection is dropped if the frame is incomplete; each "
        "64 KiB received add one second.",
        whole(1, 86_400, "s", own=True),
    )
    max_push_bytes_per_connection: Whole = setting(
        1_048_576,
        "Maximum number of bytes that requests to a client may add to its unread answers above "
        "writeBufferHighWaterMark; more requests fail until the client has caught up.",
        size(4_096, 1 << 30, own=True),
    )
    slow_request_ms: Whole = setting(
        1_000,
        "Log requests that take longer than this, with the parts of their time, at most one line every 10 s for a "
        "request code. Held pulls do not count as slow. 0 logs none.",
        millis(0, 3_600_000, own=True),
    )
    write_buffer_low_water_mark: Whole = setting(
        0,
        "Bytes of unread answers at which requests of a connection are read again; 0 means a quarter of "
        "writeBufferHighWaterMark, and never more than that.",
        size(0, 1 << 30),
    )
    server_socket_rcv_buf_size: Whole = setting(
        0,
        "Kernel receive buffer of each connection; 0 leaves the size to the kernel, which lets it grow (tcp_rmem).",
        size(0, 1 << 30),
    )
    enable_shutdown_gracefully: Flag = setting(
        False,
        "At a stop, answer GO_AWAY to the requests of clients that know it (5.3.2 and later): they turn to other "
        "brokers before their connections close.",
        HOT,
    )
    shutdown_wait_time_seconds: Whole = setting(
        30,
        "Longest time for which a stop answers GO_AWAY, if enableShutdownGracefully=true; it ends once all "
        "clients have left.",
        whole(0, 3_600, "s", hot=True),
    )
    server_socket_snd_buf_size: Whole = setting(
        0,
        "Kernel send buffer of each connection; 0 leaves the size to the kernel, which lets it grow (tcp_wmem).",
        size(0, 1 << 30),
    )
    frame_max_length: Whole = setting(
        FRAME_MAX_LENGTH,
        "Maximum size of a frame after its length field. A system property in RocketMQ.",
        size(4_096, 1 << 30, own=True),
        name="com.rocketmq.remoting.frameMaxLength",
    )

    @property
    def send_away_s(self) -> float:
        """Seconds for which a stop answers GO_AWAY."""
        return self.shutdown_wait_time_seconds if self.enable_shutdown_gracefully else 0
