"""Limits on the peers of a server, from its settings (org.apache.rocketmq.remoting.netty.NettyServerConfig)."""

from rocketbroker.common.config import TransportConfig
from rocketbroker.common.open_files import connection_limit
from rocketbroker.transport.connection_limits import WRITE_HIGH_WATER, ConnectionLimits


def limits_of(transport: TransportConfig) -> ConnectionLimits:
    """Return the limits of a broker's or name server's connections."""
    descriptors = connection_limit()
    return ConnectionLimits(
        frame_max_length=transport.frame_max_length,
        max_connections=min(transport.max_connections, descriptors),
        max_connections_per_address=transport.max_connections_per_address,
        write_high_water=transport.write_buffer_high_water_mark or WRITE_HIGH_WATER,
        max_idle_s=transport.server_channel_max_idle_time_seconds,
        send_buffer=transport.server_socket_snd_buf_size,
        max_header_length=transport.max_header_length,
        max_request_body_size=transport.max_request_body_size,
        max_held_bytes=transport.max_held_bytes,
        frame_timeout_s=transport.frame_timeout_seconds,
        max_push_bytes=transport.max_push_bytes_per_connection,
        slow_request_s=transport.slow_request_log_mills / 1000,
        max_descriptor=descriptors,
    )
