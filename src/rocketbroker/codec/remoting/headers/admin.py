"""Administration of a broker: GET_BROKER_CONFIG (26), VIEW_BROKER_STATS_DATA (315), high availability (906 to 1008)."""

from rocketbroker.codec.remoting.custom_header import CommandCustomHeader
from rocketbroker.codec.remoting.java_types import Int, Long


class GetBrokerConfigResponseHeader(CommandCustomHeader):
    """Answer to 26: ``version`` is the DataVersion as JSON."""

    version: str


class ViewBrokerStatsDataRequestHeader(CommandCustomHeader):
    """Code 315."""

    stats_name: str
    stats_key: str


class AddBrokerRequestHeader(CommandCustomHeader):
    """Code 902, to a broker container."""

    config_path: str | None = None


class RemoveBrokerRequestHeader(CommandCustomHeader):
    """Code 903, to a broker container."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Long


class ExchangeHAInfoRequestHeader(CommandCustomHeader):
    """Code 906."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(CommandCustomHeader):
    """Answer to 906."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ResetMasterFlushOffsetHeader(CommandCustomHeader):
    """Code 908."""

    master_flush_offset: Long


class NotifyBrokerRoleChangedRequestHeader(CommandCustomHeader):
    """Code 1008."""

    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
    master_broker_id: Long | None = None
