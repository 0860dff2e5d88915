"""Choice of the queue for a message, and brokers to avoid (MQFaultStrategy, LatencyFaultToleranceImpl)."""

from collections.abc import Callable, Sequence

from rocketbroker.client.queue_selection import RoundRobin
from rocketbroker.codec.message.message_ext import MessageQueue

# Answer time from which a broker is avoided, and for how long, in seconds (latencyMax, notAvailableDuration).
_PAUSES_S = ((15.0, 30.0), (5.0, 10.0), (3.0, 6.0), (1.8, 5.0), (0.55, 2.0))
# A failed send counts as an answer after this time.
_FAILED_S = 10.0


class MQFaultStrategy:
    """Takes the queues in turn; avoids brokers that failed or were slow.

    Attributes:
        send_latency_enable: ``update`` must be called after each try.

    Args:
        monotonic: seconds of a clock that never goes back.
        send_latency_enable: avoid a slow or failed broker for a while, for all messages; else only a message that just
            failed there goes to another broker.
    """

    def __init__(self, monotonic: Callable[[], float], *, send_latency_enable: bool = False) -> None:
        self._monotonic = monotonic
        self.send_latency_enable = send_latency_enable
        self._round_robin = RoundRobin()
        # Time until which a broker is avoided.
        self._avoided_until: dict[str, float] = {}

    def select(self, queues: Sequence[MessageQueue], last_broker: str | None = None) -> MessageQueue:
        """Return the queue for a message; at least one queue must be given.

        Args:
            queues: the writable queues of one topic.
            last_broker: the broker where this message failed last.
        """
        avoided = {last_broker} | self._avoided() if self.send_latency_enable else (last_broker,)
        return self._round_robin.select(queues, avoided)

    def _avoided(self) -> set[str]:
        now = self._monotonic()
        return {broker for broker, until in self._avoided_until.items() if until > now}

    def update(self, broker: str, took_s: float, *, failed: bool) -> None:
        """Note the time that a send to a broker took (updateFaultItem)."""
        counted = _FAILED_S if failed else took_s
        pause_s = next((pause for least, pause in _PAUSES_S if counted >= least), 0.0)
        if pause_s:
            self._avoided_until[broker] = self._monotonic() + pause_s
        else:
            self._avoided_until.pop(broker, None)
