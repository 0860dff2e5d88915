"""VIEW_BROKER_STATS_DATA (315): one counter over the last minute, hour and day (AdminBrokerProcessor)."""

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.codec.remoting.bodies.offset import BrokerStatsData, BrokerStatsItem
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import ViewBrokerStatsDataRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode

_SHOWN = 255


class ViewBrokerStatsDataProcessor:
    """Answers the sums and rates of a counter."""

    def __init__(self, stats: BrokerStatsManager) -> None:
        self._stats = stats

    def process(self, _connection: Connection, command: RemotingCommand[ViewBrokerStatsDataRequestHeader]) -> Command:
        """Answer the request; SYSTEM_ERROR when nothing was counted under that name and key."""
        header = command.header
        data = self._stats.view(header.stats_name, header.stats_key)
        if data is None:
            remark = f"The stats <{header.stats_name[:_SHOWN]}> <{header.stats_key[:_SHOWN]}> not exist"
            return response(ResponseCode.SYSTEM_ERROR, remark)
        return response(body=BrokerStatsData(*(BrokerStatsItem(*window) for window in data)).encode())
