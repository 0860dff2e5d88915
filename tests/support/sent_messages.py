"""Parts for tests of senders without a broker: acknowledgements, and time that passes at once."""

from rocketbroker.client.core.message import SendResult, SendStatus
from rocketbroker.codec.message.message_ext import MessageQueue


class StepClock:
    """Time that only sleeping moves on."""

    now = 0.0

    def time_ms(self) -> int:
        return round(self.now * 1000)

    def monotonic(self) -> float:
        return self.now


def send_result(status: SendStatus = SendStatus.SEND_OK) -> SendResult:
    """Return an acknowledgement by broker a."""
    return SendResult(status, "id", "offset-id", MessageQueue("T", "a", 0), 0)
