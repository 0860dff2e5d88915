"""Settings of a listening remoting server; answers to org.apache.rocketmq.remoting.netty.NettyServerConfig."""

from rocketbroker.common.config.fields import ConfigModel, Text, Trait, Whole, setting

BROKER_PORT = 10911
NAMESRV_PORT = 9876
FRAME_MAX_LENGTH = 16_777_216


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
        "A connection is closed that sends nothing for this long, or takes nothing of the answers that wait for it.",
        Trait(unit="s"),
        low=1,
        high=86_400,
    )
    max_connections: Whole = setting(
        "maxConnections",
        10_000,
        "Most connections that are open at a time; one more is closed at once. Each needs a file (ulimit -n).",
        Trait(own=True),
        low=1,
        high=1_000_000,
    )
    write_buffer_high_water_mark: Whole = setting(
        "writeBufferHighWaterMark",
        0,
        "A connection that has not taken this much of its answers is not heard until it has; 0 means 1 MiB.",
        Trait(unit="bytes"),
        low=0,
        high=1 << 30,
    )
    max_push_bytes_per_connection: Whole = setting(
        "maxPushBytesPerConnection",
        1_048_576,
        "Requests to a client that has not taken its answers (writeBufferHighWaterMark) may add this much to what waits"
        " for it; more are refused until it has caught up.",
        Trait(unit="bytes", own=True),
        low=4_096,
        high=1 << 30,
    )
    server_socket_snd_buf_size: Whole = setting(
        "serverSocketSndBufSize",
        0,
        "The kernel's send buffer of each connection; 0 leaves it to the kernel, which lets it grow (tcp_wmem).",
        Trait(unit="bytes"),
        low=0,
        high=1 << 30,
    )
    frame_max_length: Whole = setting(
        "com.rocketmq.remoting.frameMaxLength",
        FRAME_MAX_LENGTH,
        "Largest frame that is taken, counted after its length field. A system property in RocketMQ.",
        Trait(unit="bytes", own=True),
        low=4_096,
        high=1 << 30,
    )
