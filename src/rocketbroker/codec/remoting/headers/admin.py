"""Administration of a broker: GET_BROKER_CONFIG (26), VIEW_BROKER_STATS_DATA (315), high availability (906 to 1008)."""

from rocketbroker.codec.remoting.custom_header import CommandCustomHeader
from rocketbroker.codec.remoting.java_types import Long


class GetBrokerConfigResponseHeader(CommandCustomHeader):
    """Answer to 26: ``version`` is the DataVersion as JSON."""

    version: str


class ViewBrokerStatsDataRequestHeader(CommandCustomHeader):
    """Code 315."""

    stats_name: str
    stats_key: str


class ExchangeHAInfoRequestHeader(CommandCustomHeader):
    """Code 906: the addresses of a master that is about to register; a slave that asks for them sends none."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(CommandCustomHeader):
    """Answer of a master to 906: its addresses, and the end of its log when it started."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None
