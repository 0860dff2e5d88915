"""Properties of messages that are sent: those that the broker sets, and the limit of index keys."""

from collections.abc import Iterable, Sequence

from rocketbroker.codec.message.message_properties import (
    FoundProperties,
    get_property,
    remove_property,
    replace_property,
    split_keys,
)
from rocketbroker.codec.remoting.hot_responses import one_send_template, region_suffix, send_template
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError


class BrokerProperties:
    """The broker's properties, encoded once; create a new object after a setting has changed.

    Args:
        config: the settings.
        store_host: the broker's address in the form of records.

    Attributes:
        region_id: ``regionId``.
        trace_on: ``traceOn``.
        encoded: the properties, to append to those of a message.
        answer_fields: the fields of each answer to a send.
        answer_template: template of ``one_send_response``.
        run_template: template of ``send_responses``.
    """

    __slots__ = ("_pairs", "answer_fields", "answer_template", "encoded", "region_id", "run_template", "trace_on")

    def __init__(self, config: BrokerConfig, store_host: bytes) -> None:
        self.region_id, self.trace_on = config.region_id, config.trace_on
        self._pairs = (
            (b"MSG_REGION", config.region_id.encode()),
            (b"TRACE_ON", b"true" if config.trace_on else b"false"),
            (b"CLUSTER", config.broker_cluster_name.encode()),
        )
        self.encoded = b"".join(b"%b\x01%b\x02" % pair for pair in self._pairs)
        self.answer_fields = region_suffix(config.region_id, trace_on=config.trace_on)
        host = store_host.hex().upper().encode()
        self.answer_template = one_send_template(host, self.answer_fields)
        self.run_template = send_template(host, self.answer_fields)

    def replace_in(self, properties: bytes) -> bytes:
        """Set the broker's properties in others that may contain them: the message was consumed and is sent again.

        The handle of its delivery goes: a client that pops the copy would take it for the copy's own
        (SendMessageProcessor.clearReservedProperties).
        """
        properties = remove_property(properties, b"POP_CK")
        for name, value in self._pairs:
            properties = replace_property(properties, name, value)
        return properties


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
