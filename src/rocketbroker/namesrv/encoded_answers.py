"""Cache of encoded answers."""

from collections.abc import Callable, Hashable, Iterable

from rocketbroker.codec.remoting.frame import FRAME_MAX_LENGTH
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

_MOST_BYTES = 64 << 20
# Leaves room for the header in a frame.
LARGEST_BODY = FRAME_MAX_LENGTH - 65_536


class EncodedAnswers:
    """Encoded bodies by request, kept until the tables change: clients repeat their requests every 30 s.

    A change drops the routes of its topics only. A cluster of 1,000 brokers changes all the time, and encoding the
    routes of 10,000 topics takes seconds.

    Args:
        most_bytes: size above which the cache is emptied.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._routes: dict[str, dict[Hashable, bytes]] = {}
        self._lists: dict[Hashable, bytes] = {}

    def route(self, topic: str, form: Hashable, make: Callable[[], bytes | None]) -> bytes | None:
        """Return the cached or newly made route; ``None``, which is not cached, for a topic without one.

        Raises:
            BrokerResponseError: SYSTEM_ERROR; the body does not fit a frame.
        """
        body = self._routes.get(topic, {}).get(form)
        if body is None:
            body = make()
            if body is not None:
                self._make_room(body)
                self._routes.setdefault(topic, {})[form] = body
        return body

    def list(self, asked: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the cached or newly made list of brokers or topics.

        Raises:
            BrokerResponseError: SYSTEM_ERROR; the body does not fit a frame.
        """
        body = self._lists.get(asked)
        if body is None:
            body = make()
            self._make_room(body)
            self._lists[asked] = body
        return body

    def _make_room(self, body: bytes) -> None:
        if len(body) > LARGEST_BODY:
            text = (
                f"the answer has {len(body):,} bytes, more than a frame can carry; ask for a part of it, such as a "
                "cluster"
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text)
        if self._bytes + len(body) > self._most_bytes:
            self.forget()
        self._bytes += len(body)

    def forget_topics(self, topics: Iterable[str]) -> None:
        """Drop the routes of topics that changed, and all lists."""
        for topic in self._routes.keys() & topics:
            self._bytes -= sum(map(len, self._routes.pop(topic).values()))
        self._bytes -= sum(map(len, self._lists.values()))
        self._lists.clear()

    def forget(self) -> None:
        """Empty the cache after a change of a setting."""
        self._routes.clear()
        self._lists.clear()
        self._bytes = 0
