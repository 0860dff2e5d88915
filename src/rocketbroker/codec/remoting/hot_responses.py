"""Answers of the hot codes from byte templates: whole frames with JSON headers, without command, dict or encoder.

Each equals the frame that ``encode_frame`` makes of the same answer. The order of ``extFields`` is that of Java's hash
map, so that the bytes are those of Apache RocketMQ.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import pack

import msgspec

from rocketbroker.codec.remoting.frame import LENGTH_AND_MARK
from rocketbroker.codec.remoting.headers.pop import PopMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import CURRENT_VERSION

_TAIL = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION
_FLAG = b'"flag":1,"language":"JAVA","opaque":%d'
_SUCCESS = b'{"code":0,"extFields":{},' + _FLAG + _TAIL
_BARE_SUCCESS = b'{"code":0,' + _FLAG + _TAIL
_POP = (
    b'{"code":0,"extFields":{"invisibleTime":"%d","startOffsetInfo":"%b","restNum":"%d"%b,"popTime":"%d",'
    b'"reviveQid":"%d","msgOffsetInfo":"%b"},' + _FLAG + b',"remark":"FOUND"' + _TAIL
)
_SEND = b'{"code":0,"extFields":{"queueId":"%d"%b,"msgId":"%b"%b,"queueOffset":"%d"},' + _FLAG + _TAIL
_PULL = (
    b'{"code":%d,"extFields":{"suggestWhichBrokerId":"%d","groupSysFlag":"%d","nextBeginOffset":"%d","maxOffset":"%d",'
    b'"minOffset":"%d","topicSysFlag":"%d"},' + _FLAG + b"%b" + _TAIL
)
_pack = LENGTH_AND_MARK.pack


def success_response(opaque: int) -> bytes:
    """Return an answer of success without fields or body."""
    header = _SUCCESS % opaque
    length = len(header)
    return _pack(4 + length, length) + header


def bare_success_response(opaque: int) -> bytes:
    """Return an answer of success that has no fields at all, as acknowledgements get (200051, 200151)."""
    header = _BARE_SUCCESS % opaque
    length = len(header)
    return _pack(4 + length, length) + header


def region_suffix(region_id: str, *, trace_on: bool) -> bytes:
    """Return the fields ``TRACE_ON`` and ``MSG_REGION`` of each answer to a send; make them once."""
    return b',"TRACE_ON":"%b","MSG_REGION":%b' % (b"true" if trace_on else b"false", msgspec.json.encode(region_id))


def recall_handle_suffix(handle: str) -> bytes:
    """Return the field ``recallHandle``, to follow the region's fields in the answer to the send of a timer message."""
    return b',"recallHandle":"%b"' % handle.encode()


def batch_uniq_id_suffix(unique_key: bytes) -> bytes:
    """Return the field ``batchUniqId``, to follow the region's fields in the answer to a batch stored as one record."""
    return b',"batchUniqId":%b' % msgspec.json.encode(unique_key.decode("utf-8", "replace"))


def send_response(
    opaque: int, queue_id: int, queue_offset: int, msg_id: bytes, transaction_id: bytes | None, region_suffix: bytes
) -> bytes:
    """Return an answer of success to a send (codes 10, 310, 320).

    Args:
        opaque: opaque of the request.
        queue_id: queue of the message.
        queue_offset: offset of the message, or of the first in a batch.
        msg_id: offset message id in ASCII hex; comma-joined for a batch.
        transaction_id: UNIQ_KEY of the message in UTF-8, left out if ``None``.
        region_suffix: result of the function of that name; another suffix may follow.
    """
    header = _SEND % (queue_id, _transaction(transaction_id), msg_id, region_suffix, queue_offset, opaque)
    length = len(header)
    return _pack(4 + length, length) + header


def one_send_response(
    opaque: int, queue_id: int, queue_offset: int, physical_offset: int, unique_key: bytes, template: bytes
) -> bytes:
    """Return the answer of ``send_response`` to a single message whose UNIQ_KEY has letters and digits only.

    ``template`` is the result of ``one_send_template``.
    """
    header = template % (queue_id, unique_key, physical_offset, queue_offset, opaque)
    length = len(header)
    return _pack(4 + length, length) + header


def one_send_template(host: bytes, region_suffix: bytes) -> bytes:
    """Return the template of ``one_send_response``; the arguments are those of ``send_template``."""
    template = _SEND.replace(b'"%d"%b', b'"%d","transactionId":"%b"', 1)
    return template.replace(b'"msgId":"%b"%b', b'"msgId":"%b%%016X"%b' % (host, region_suffix.replace(b"%", b"%%")))


def message_ids(host: str, offsets: Sequence[int]) -> bytes:
    """Return offset message ids, comma-joined: the broker's address in hex, and a CommitLog offset of 8 bytes."""
    joined = pack(f">{len(offsets)}Q", *offsets).hex(",", 8).upper()
    return (host + joined.replace(",", "," + host)).encode()


def send_responses(
    opaques: Sequence[bytes],
    queue_ids: Sequence[bytes],
    queue_offsets: Sequence[int],
    physical_offsets: Sequence[int],
    unique_keys: Sequence[bytes | None],
    template: bytes,
) -> list[bytes]:
    """Return the headers of answers to several sends (codes 10, 310), without length and mark; see ``frames``.

    Args:
        opaques: opaques of the requests, in digits.
        queue_ids: queues of the messages, in digits.
        queue_offsets: offsets of the messages in their queues.
        physical_offsets: offsets of the messages in the CommitLog.
        unique_keys: UNIQ_KEY of the messages, letters and digits only.
        template: result of ``send_template``.
    """
    columns = zip(queue_ids, unique_keys, physical_offsets, queue_offsets, opaques, strict=True)
    return list(map(template.__mod__, columns))


def send_template(host: bytes, region_suffix: bytes) -> bytes:
    """Return the template of ``send_responses``; make it once.

    Args:
        host: address of the broker in ASCII hex, with which each message id begins.
        region_suffix: result of the function of that name.
    """
    # Numbers that a request has in digits stay digits.
    template = one_send_template(host, region_suffix)
    return template.replace(b'"queueId":"%d"', b'"queueId":"%b"').replace(b'opaque":%d', b'opaque":%b')


def frames(headers: Sequence[bytes]) -> bytes:
    """Return responses without a body, back to back, each with length and mark before its header."""
    lengths = list(map(len, headers))
    head_of = {length: _pack(4 + length, length) for length in set(lengths)}
    pieces = [b""] * (2 * len(headers))
    pieces[0::2] = map(head_of.__getitem__, lengths)
    pieces[1::2] = headers
    return b"".join(pieces)


def _transaction(transaction_id: bytes | None) -> bytes:
    if transaction_id is None:
        return b""
    if transaction_id.isalnum():
        return b',"transactionId":"%b"' % transaction_id
    return b',"transactionId":%b' % msgspec.json.encode(transaction_id.decode("utf-8", "replace"))


def pull_response_head(  # noqa: PLR0913, PLR0917 - one argument for each field of the answer
    opaque: int,
    code: int,
    remark: str,
    suggest_which_broker_id: int,
    next_begin_offset: int,
    min_offset: int,
    max_offset: int,
    body_length: int,
    topic_sys_flag: int = 0,
    group_sys_flag: int = 0,
) -> bytes:
    """Return length, mark and header of an answer to a pull (11, 361); ``body_length`` bytes of records must follow."""
    header = _PULL % (
        code,
        suggest_which_broker_id,
        group_sys_flag,
        next_begin_offset,
        max_offset,
        min_offset,
        topic_sys_flag,
        opaque,
        _remark(remark),
    )
    length = len(header)
    return _pack(4 + length + body_length, length) + header


def pop_response_head(opaque: int, fields: PopMessageResponseHeader, body_length: int) -> bytes:
    """Return length, mark and header of an answer to a pop that found messages; ``body_length`` bytes must follow.

    Neither text is ``None``. Both are those of ``codec.message.pop_info``, which JSON does not escape.
    """
    start_offsets, message_offsets, order_counts = (
        fields.start_offset_info,
        fields.msg_offset_info,
        fields.order_count_info,
    )
    assert start_offsets is not None
    assert message_offsets is not None
    header = _POP % (
        fields.invisible_time,
        start_offsets.encode(),
        fields.rest_num,
        b"" if order_counts is None else b',"orderCountInfo":"%b"' % order_counts.encode(),
        fields.pop_time,
        fields.revive_qid,
        message_offsets.encode(),
        opaque,
    )
    length = len(header)
    return _pack(4 + length + body_length, length) + header


@lru_cache(maxsize=64)
def _remark(remark: str) -> bytes:
    return b',"remark":%b' % msgspec.json.encode(remark)
