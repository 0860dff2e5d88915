"""Settings of slaves that act as master; part of the broker's settings (org.apache.rocketmq.common.BrokerConfig)."""

from rocketbroker.common.config.fields import ConfigModel, Flag, Trait, Whole, setting

_MINUTE_MS = 60_000
_MS = Trait(unit="ms")


class ActingSettings(ConfigModel):
    """Heartbeats of brokers, and what an acting master does."""

    enable_slave_acting_master: Flag = setting(
        "enableSlaveActingMaster",
        False,
        "Let the slave with the smallest brokerId act as read-only master while no master is registered. Set it on "
        "master and slaves, and supportActingMaster=true on the name servers.",
    )
    enable_remote_escape: Flag = setting(
        "enableRemoteEscape",
        False,
        "Let an acting master send delayed messages and timer messages that are due, and open transactions, to another "
        "master of the cluster; otherwise they wait for the master.",
    )
    skip_pre_online: Flag = setting(
        "skipPreOnline",
        False,
        "Start a master without taking over the progress of its slaves first (enableSlaveActingMaster=true).",
    )
    broker_heartbeat_interval: Whole = setting(
        "brokerHeartbeatInterval",
        1_000,
        "Interval of heartbeats to the name servers if enableSlaveActingMaster=true.",
        _MS,
        low=100,
        high=_MINUTE_MS,
    )
    broker_not_active_timeout_millis: Whole = setting(
        "brokerNotActiveTimeoutMillis",
        10_000,
        "Time without a heartbeat after which name servers forget this broker if enableSlaveActingMaster=true.",
        _MS,
        low=1_000,
        high=10 * _MINUTE_MS,
    )
    sync_broker_member_group_period: Whole = setting(
        "syncBrokerMemberGroupPeriod",
        1_000,
        "Interval at which a slave asks the name servers for the live brokers of its name if "
        "enableSlaveActingMaster=true.",
        _MS,
        low=100,
        high=_MINUTE_MS,
    )
