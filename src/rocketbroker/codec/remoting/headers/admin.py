"""Administration of a broker: GET_BROKER_CONFIG (26), VIEW_BROKER_STATS_DATA (315), high availability (906 to 1008)."""

from rocketbroker.codec.remoting.custom_header import CommandCustomHeader


class GetBrokerConfigResponseHeader(CommandCustomHeader):
    """Answer to 26: ``version`` is the DataVersion as JSON."""

    version: str


class ViewBrokerStatsDataRequestHeader(CommandCustomHeader):
    """Code 315."""

    stats_name: str
    stats_key: str
