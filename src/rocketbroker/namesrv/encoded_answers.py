"""Cache of encoded answers."""

from collections.abc import Callable, Hashable

from rocketbroker.codec.remoting.frame import FRAME_MAX_LENGTH
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

_MOST_BYTES = 64 << 20
# Leaves room for the header in a frame.
LARGEST_BODY = FRAME_MAX_LENGTH - 65_536


class EncodedAnswers:
    """Encoded bodies by request, kept until the tables change: clients repeat their requests every 30 s.

    Args:
        most_bytes: size above which the cache is emptied.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._bodies: dict[Hashable, bytes] = {}

    def get(self, asked: Hashable, make: Callable[[], bytes | None]) -> bytes | None:
        """Return the cached or newly made body; ``None``, which is not cached, if there is none to send.

        Raises:
            BrokerResponseError: SYSTEM_ERROR; the body does not fit a frame.
        """
        body = self._bodies.get(asked)
        if body is None:
            body = make()
            if body is not None:
                self._keep(asked, body)
        return body

    def _keep(self, asked: Hashable, body: bytes) -> None:
        if len(body) > LARGEST_BODY:
            text = (
                f"the answer has {len(body):,} bytes, more than a frame can carry; ask for a part of it, such as a "
                "cluster"
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text)
        if self._bytes + len(body) > self._most_bytes:
            self.forget()
        self._bodies[asked] = body
        self._bytes += len(body)

    def forget(self) -> None:
        """Empty the cache after a change of a table or a setting."""
        self._bodies.clear()
        self._bytes = 0
