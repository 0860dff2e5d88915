"""Settings of a listening remoting server; answers to org.apache.rocketmq.remoting.netty.NettyServerConfig."""

from typing import Annotated, Literal

from pydantic import BeforeValidator

from rocketbroker.common.config.fields import ConfigModel, Text, Trait, Whole, setting

BROKER_PORT = 10911
NAMESRV_PORT = 9876
FRAME_MAX_LENGTH = 16_777_216

SerializeType = Annotated[
    Literal["JSON", "ROCKETMQ"], BeforeValidator(lambda value: value.strip() if isinstance(value, str) else value)
]


class TransportConfig(ConfigModel):
    """Where and how a server listens. `listen_port` is the port that is bound; a hot change never moves it."""

    listen_port: Whole = setting(
        "listenPort",
        BROKER_PORT,
        "TCP port to listen on; 0 lets the system choose one. The broker's VIP port is this one minus 2.",
        Trait(important=True, shown_default="10911 (broker), 9876 (name server)"),
        low=0,
        high=65_535,
    )
    bind_address: Text = setting("bindAddress", "0.0.0.0", "Address to listen on; 0.0.0.0 means all.")  # noqa: S104
    server_channel_max_idle_time_seconds: Whole = setting(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "A connection on which nothing was read or written for this long is closed.",
        Trait(unit="s"),
        low=1,
        high=86_400,
    )
    server_socket_backlog: Whole = setting(
        "serverSocketBacklog", 1024, "Connections that may wait to be accepted.", low=1, high=65_535
    )
    server_socket_snd_buf_size: Whole = setting(
        "serverSocketSndBufSize",
        0,
        "SO_SNDBUF of accepted connections; 0 leaves it to the system.",
        Trait(unit="bytes"),
        low=0,
        high=1 << 30,
    )
    server_socket_rcv_buf_size: Whole = setting(
        "serverSocketRcvBufSize",
        0,
        "SO_RCVBUF of accepted connections; 0 leaves it to the system.",
        Trait(unit="bytes"),
        low=0,
        high=1 << 30,
    )
    write_buffer_high_water_mark: Whole = setting(
        "writeBufferHighWaterMark",
        0,
        "Bytes waiting to be written above which a connection is no longer read; 0 means 4 MiB.",
        Trait(unit="bytes"),
        low=0,
        high=1 << 30,
    )
    write_buffer_low_water_mark: Whole = setting(
        "writeBufferLowWaterMark",
        0,
        "Bytes waiting to be written below which a connection is read again; 0 means a quarter of the high mark.",
        Trait(unit="bytes"),
        low=0,
        high=1 << 30,
    )
    frame_max_length: Whole = setting(
        "com.rocketmq.remoting.frameMaxLength",
        FRAME_MAX_LENGTH,
        "Longest frame that is taken, its four length bytes included. A system property in RocketMQ.",
        Trait(unit="bytes", own=True),
        low=4_096,
        high=1 << 30,
    )
    serialize_type: SerializeType = setting(
        "rocketmq.serialize.type",
        "JSON",
        "Encoding of response headers, whatever the request came in. A system property in RocketMQ.",
        Trait(own=True, takes="JSON or ROCKETMQ"),
    )
