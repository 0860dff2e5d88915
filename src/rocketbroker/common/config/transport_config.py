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
        "A connection that sends nothing for this long is closed.",
        Trait(unit="s"),
        low=1,
        high=86_400,
    )
    frame_max_length: Whole = setting(
        "com.rocketmq.remoting.frameMaxLength",
        FRAME_MAX_LENGTH,
        "Largest frame that is taken, counted after its length field. A system property in RocketMQ.",
        Trait(unit="bytes", own=True),
        low=4_096,
        high=1 << 30,
    )
