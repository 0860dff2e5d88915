from rocketbroker.app.transport_limits import limits_of
from rocketbroker.common.config import TransportConfig
from rocketbroker.common.open_files import connection_limit
from rocketbroker.transport.connection_limits import WRITE_HIGH_WATER, ConnectionLimits


def test_each_setting_becomes_a_limit():
    config = TransportConfig.model_validate(
        {
            "com.rocketmq.remoting.frameMaxLength": 5000,
            "maxConnections": 7,
            "maxConnectionsPerAddress": 3,
            "writeBufferHighWaterMark": 9000,
            "serverSocketSndBufSize": 13,
            "serverChannelMaxIdleTimeSeconds": 11,
            "maxHeaderLength": 70_000,
            "maxRequestBodySize": 80_000,
            "maxHeldBytes": 1 << 26,
            "frameTimeoutSeconds": 17,
            "maxPushBytesPerConnection": 6000,
            "slowRequestLogMills": 2500,
        }
    )

    assert limits_of(config) == ConnectionLimits(
        frame_max_length=5000,
        max_connections=7,
        max_connections_per_address=3,
        write_high_water=9000,
        send_buffer=13,
        max_idle_s=11,
        max_header_length=70_000,
        max_request_body_size=80_000,
        max_held_bytes=1 << 26,
        frame_timeout_s=17,
        max_push_bytes=6000,
        slow_request_s=2.5,
        max_descriptor=connection_limit(),
    )


def test_0_leaves_the_high_water_mark_to_the_broker():
    made = ConnectionLimits(max_connections=10_000, max_descriptor=connection_limit(), slow_request_s=1.0)
    assert limits_of(TransportConfig()) == made
    assert limits_of(TransportConfig()).write_high_water == WRITE_HIGH_WATER


def test_connections_are_no_more_than_open_files(monkeypatch):
    monkeypatch.setattr("rocketbroker.app.transport_limits.connection_limit", lambda: 752)

    limits = limits_of(TransportConfig())

    assert (limits.max_connections, limits.max_descriptor) == (752, 752)
