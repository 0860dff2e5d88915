"""GET_TIMER_CHECK_POINT (60): progress of the timer, for slaves (AdminBrokerProcessor.getTimerCheckPoint)."""

from rocketbroker.broker.timer.timer_message_store import TimerMessageStore
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response


class GetTimerCheckPointProcessor:
    """Answers the deliveries whose copies are on disk, in the format of ``config/timercheck``."""

    def __init__(self, timer: TimerMessageStore) -> None:
        self._timer = timer

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        return response(body=self._timer.checkpoint().encode())
