"""GET_ALL_DELAY_OFFSET (45): progress of each delay level, for slaves (AdminBrokerProcessor)."""

from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.codec.remoting.bodies.offset import DelayOffsetSerializeWrapper
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response


class GetAllDelayOffsetProcessor:
    """Answers the content of ``delayOffset.json``."""

    def __init__(self, schedule: ScheduleMessageService) -> None:
        self._schedule = schedule

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        table = dict(sorted(self._schedule.offset_table.items()))
        return response(body=DelayOffsetSerializeWrapper(table, self._schedule.data_version).encode())
