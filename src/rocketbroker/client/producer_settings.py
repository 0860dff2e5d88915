"""Settings of producers."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

import msgspec

from rocketbroker.client.message import MAX_MESSAGE_SIZE
from rocketbroker.client.options import Count, CountFrom0, Seconds
from rocketbroker.client.outgoing import CompressionType
from rocketbroker.client.send_message_hook import SendMessageHook


class ProducerOptions(TypedDict, total=False):
    """Settings of Producer and TransactionProducer, with their defaults in ProducerSettings.

    Args:
        send_timeout_s: time limit of a send with its retries, by default 3.
        retry_times_when_send_failed: further tries of a failed send, on another broker where there is one; 2.
        send_max_timeout_per_request_s: time limit of each try (sendMsgMaxTimeoutPerRequest); None, the default, gives a
            try half of the time that is left where another broker has the topic, so that a silent one leaves time.
        retry_another_broker_when_not_store_ok: count a result other than SEND_OK as failed; off.
        send_latency_enable: avoid a broker that failed or was slow for a while (sendLatencyFaultEnable); off.
        compress_msg_body_over_howmuch: compress bodies of so many bytes or more; 4096.
        compress_type: compression of bodies; ZLIB.
        compress_level: its level; 5.
        max_message_size: limit of a body, and of a batch, in bytes; 4 MiB.
        back_pressure_sends: sends in flight beyond which others wait; 10,000.
        back_pressure_bytes: bytes of bodies in flight beyond which other sends wait; 100 MiB.
        hooks: called around each try of a send.
    """

    send_timeout_s: Seconds
    retry_times_when_send_failed: CountFrom0
    send_max_timeout_per_request_s: Seconds | None
    retry_another_broker_when_not_store_ok: bool
    send_latency_enable: bool
    compress_msg_body_over_howmuch: CountFrom0
    compress_type: CompressionType
    compress_level: Annotated[int, msgspec.Meta(ge=0, le=9)]
    max_message_size: Count
    back_pressure_sends: Count
    back_pressure_bytes: Count
    hooks: Sequence[SendMessageHook]


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``ProducerOptions`` with their defaults, checked by the constructors that take them."""

    send_timeout_s: float = 3.0
    retry_times_when_send_failed: int = 2
    send_max_timeout_per_request_s: float | None = None
    retry_another_broker_when_not_store_ok: bool = False
    send_latency_enable: bool = False
    compress_msg_body_over_howmuch: int = 4096
    compress_type: CompressionType = CompressionType.ZLIB
    compress_level: int = 5
    max_message_size: int = MAX_MESSAGE_SIZE
    back_pressure_sends: int = 10_000
    back_pressure_bytes: int = 100 * 1024 * 1024
    hooks: Sequence[SendMessageHook] = ()
