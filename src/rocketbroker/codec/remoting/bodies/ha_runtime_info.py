"""State of replication (org.apache.rocketmq.remoting.protocol.body.HARuntimeInfo)."""

import msgspec

from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.java_types import Int, Long


class HAConnectionRuntimeInfo(RemotingSerializable):
    """One slave, as its master sees it."""

    addr: str = ""
    slave_ack_offset: Long = 0
    diff: Long = 0
    in_sync: bool = False
    transferred_byte_in_second: Long = 0
    transfer_from_where: Long = 0


class HAClientRuntimeInfo(RemotingSerializable):
    """The copying of a slave."""

    master_addr: str | None = None
    transferred_byte_in_second: Long = 0
    max_offset: Long = 0
    last_read_timestamp: Long = 0
    last_write_timestamp: Long = 0
    master_flush_offset: Long = 0


class HARuntimeInfo(RemotingSerializable):
    """Answer to GET_BROKER_HA_STATUS (907)."""

    master: bool = True
    master_commit_log_max_offset: Long = 0
    in_sync_slave_nums: Int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = msgspec.field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = msgspec.field(default_factory=HAClientRuntimeInfo)
