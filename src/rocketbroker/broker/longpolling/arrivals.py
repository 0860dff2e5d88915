"""Notice of new messages to all services that hold requests until some arrive (NotifyMessageArrivingListener)."""

from collections.abc import Sequence

from rocketbroker.store.dispatch.commit_log_dispatcher import MessageArrivingListener


class NotifyMessageArrivingListener:
    """Passes the notice of each message on to several listeners.

    Args:
        listeners: the listeners; asked once for each message whether they wait, so there should be few.
    """

    def __init__(self, *listeners: MessageArrivingListener) -> None:
        self._listeners: Sequence[MessageArrivingListener] = listeners

    @property
    def waiting(self) -> bool:
        """True if one of them waits for messages."""
        # Asked for each message: a generator would take twice as long.
        for each in self._listeners:  # noqa: SIM110
            if each.waiting:
                return True
        return False

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """Notify the listeners that wait."""
        for each in self._listeners:
            if each.waiting:
                each.arriving(topic, queue_id, max_offset, tags_code)
