"""The limit of index keys for a message that is sent (maxKeysPerMessage)."""

from collections.abc import Iterable, Sequence

from rocketbroker.codec.message.message_properties import FoundProperties, get_property, split_keys
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

# A key has one byte at least, and a blank before the next one.
_SHORTEST_KEY = 2
# Clients put the keys of a hundred traced messages into one message; 32,767 bytes hold about 1,900 keys of such pairs.
_MOST_OF_TRACES = 2048


class KeyLimit:
    """Rejects messages with too many keys in KEYS: each is an entry of 20 bytes in the index.

    Stored messages, even those of a broker without the limit, are not rejected when they are stored again.

    Args:
        limit: maxKeysPerMessage.

    Attributes:
        always_fits: length of keys, or of all properties, that cannot be too many keys, so that most need no check.
    """

    __slots__ = ("_limit", "always_fits")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.always_fits = _SHORTEST_KEY * limit

    def of_traces(self) -> "KeyLimit":
        """Return the limit of a message of traces, which has the keys of many messages."""
        return KeyLimit(max(self._limit, _MOST_OF_TRACES))

    def check(self, properties: bytes) -> None:
        """Check the properties of a message.

        Raises:
            BrokerResponseError: MESSAGE_ILLEGAL if it has too many keys.
        """
        if len(properties) <= self.always_fits:
            return
        keys = get_property(properties, b"KEYS")
        if keys is None or keys.count(b" ") < self._limit or (count := len(split_keys(keys))) <= self._limit:
            return
        remark = (
            f"maxKeysPerMessage: {count:,} keys exceed the limit of {self._limit:,}; give the message fewer keys or "
            "raise maxKeysPerMessage"
        )
        raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, remark)

    def always_fits_all(self, properties: Sequence[bytes], found: Iterable[FoundProperties]) -> bool:
        """Return true if no message can have too many keys; ``found`` is in their properties.

        Most have short properties, whose keys need no look.
        """
        if max(map(len, properties)) <= self.always_fits:
            return True
        return all(keys is None or len(keys) <= self.always_fits for _, _, keys, _ in found)

    def check_all(self, properties: Iterable[bytes]) -> None:
        """Check the properties of the messages of a batch; raise as ``check`` does."""
        for each in properties:
            if len(each) > self.always_fits:
                self.check(each)
