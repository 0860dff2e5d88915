"""Properties that the broker sets on each message: MSG_REGION, TRACE_ON and CLUSTER."""

from rocketbroker.codec.message.message_properties import replace_property
from rocketbroker.codec.remoting.hot_responses import one_send_template, region_suffix, send_template
from rocketbroker.common.config import BrokerConfig


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
        """Set the broker's properties in others that may contain them: the message was consumed and is sent again."""
        for name, value in self._pairs:
            properties = replace_property(properties, name, value)
        return properties
