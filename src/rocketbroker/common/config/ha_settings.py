"""Settings of replication (org.apache.rocketmq.store.config.MessageStoreConfig)."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from rocketbroker.common.config.fields import ConfigModel, Text, Trait, Whole, setting
from rocketbroker.common.config.texts import is_host, strip

_PORT_MAX = 65_535
_PORT_DIGITS = 5
_INT_MAX = 2**31 - 1
_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
# Apache's slave has a buffer of 4 MiB.
_HA_BODY_MAX = 4 * 1024 * 1024 - 12
_MS = Trait(unit="ms")
_HOT = Trait(hot=True)
_HOT_MS = Trait(unit="ms", hot=True)
_HOT_BYTES = Trait(unit="bytes", hot=True)


def _check_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS and 0 < int(port) <= _PORT_MAX
    if value and not (is_port and is_host(host.removeprefix("[").removesuffix("]"))):
        raise ValueError("not an address")
    return value


BrokerRole = Annotated[Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"], BeforeValidator(strip)]
Address = Annotated[Text, AfterValidator(_check_address)]


class HASettings(ConfigModel):
    """Role, HA port, intervals and acknowledgement by slaves."""

    broker_role: BrokerRole = setting(
        "brokerRole",
        "ASYNC_MASTER",
        "Role in replication: a slave copies the messages of its master and takes none; SYNC_MASTER waits for "
        "inSyncReplicas before it acknowledges a message.",
        Trait(important=True, takes="ASYNC_MASTER, SYNC_MASTER or SLAVE"),
    )
    ha_listen_port: Whole = setting(
        "haListenPort",
        10_912,
        "Port that slaves connect to, as registered with the name servers; by default listenPort plus 1.",
        Trait(shown_default="listenPort + 1"),
        low=0,
        high=65_535,
    )
    ha_master_address: Address = setting(
        "haMasterAddress",
        "",
        "HA address of a slave's master; empty asks the name servers for the master of its brokerName.",
        Trait(takes="host:port, or empty"),
    )
    ha_send_heartbeat_interval: Whole = setting(
        "haSendHeartbeatInterval",
        5_000,
        "Interval at which an idle master or slave sends a heartbeat to the other.",
        _MS,
        low=10,
        high=_HOUR_MS,
    )
    ha_housekeeping_interval: Whole = setting(
        "haHousekeepingInterval",
        20_000,
        "Time without a byte of the other after which a master or slave closes their connection.",
        _HOT_MS,
        low=100,
        high=_HOUR_MS,
    )
    ha_transfer_batch_size: Whole = setting(
        "haTransferBatchSize",
        32_768,
        "Maximum number of bytes of the log that a master sends in one transfer.",
        _HOT_BYTES,
        low=1,
        high=_HA_BODY_MAX,
    )
    ha_max_gap_not_in_sync: Whole = setting(
        "haMaxGapNotInSync",
        268_435_456,
        "Bytes behind its master from which on a slave counts as not in sync (mqadmin haStatus).",
        _HOT_BYTES,
        low=1,
        high=_INT_MAX,
    )
    in_sync_replicas: Whole = setting(
        "inSyncReplicas",
        1,
        "Brokers that must have a message before a SYNC_MASTER acknowledges it, itself included; as in RocketMQ, 1 "
        "waits for no slave.",
        _HOT,
        low=1,
        high=64,
    )
    slave_timeout: Whole = setting(
        "slaveTimeout",
        3_000,
        "Longest wait of a send for slaves (SYNC_MASTER); then it is answered FLUSH_SLAVE_TIMEOUT.",
        _HOT_MS,
        low=1,
        high=10 * _MINUTE_MS,
    )
