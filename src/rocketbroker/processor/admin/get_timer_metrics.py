"""GET_TIMER_METRICS (61): waiting timer messages by topic, for slaves (AdminBrokerProcessor.getTimerMetrics)."""

from rocketbroker.broker.slave.slave_synchronize import CopiedTable
from rocketbroker.codec.remoting.bodies.offset import TimerMetricsSerializeWrapper
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response


class GetTimerMetricsProcessor:
    """Answers an empty table, since this timer does not count by topic; a slave answers its master's."""

    def __init__(self, metrics: CopiedTable[TimerMetricsSerializeWrapper]) -> None:
        self._metrics = metrics

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        return response(body=self._metrics.content.encode())
