from rocketbroker.app.transport_limits import limits_of
from rocketbroker.common.config import TransportConfig
from rocketbroker.transport.connection_limits import ConnectionLimits


def test_each_setting_becomes_a_limit():
    config = TransportConfig.model_validate(
        {
            "com.rocketmq.remoting.frameMaxLength": 5000,
            "maxConnections": 7,
            "writeBufferHighWaterMark": 9000,
            "serverSocketSndBufSize": 13,
            "serverChannelMaxIdleTimeSeconds": 11,
        }
    )

    assert limits_of(config) == ConnectionLimits(5000, 7, 9000, 11, 13)


def test_0_leaves_the_high_water_mark_to_the_broker():
    assert limits_of(TransportConfig()) == ConnectionLimits(16_777_216, 10_000, 1 << 20, 120)
