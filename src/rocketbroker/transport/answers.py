"""Frames that answer requests, errors of handlers among them."""

import logging

from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.remoting_command import FLAG_RESPONSE, Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

log = logging.getLogger(__name__)


# A remark that repeats what a peer sent could fill a frame.
_MOST_REMARK = 4096


def encode_answer(command: Command, answer: Command) -> bytes:
    """The frame that answers a request; an answer that cannot be encoded becomes an error of its handler."""
    try:
        return encode_reply(command.opaque, answer)
    except Exception as error:  # noqa: BLE001 - logged and answered; the connection goes on
        return encode_reply(command.opaque, error_answer(command.code, error))


def encode_reply(opaque: int, answer: Command) -> bytes:
    """The frame that answers the request with that opaque; a very long remark is cut."""
    answer.opaque = opaque
    answer.flag |= FLAG_RESPONSE
    remark = answer.remark
    if remark is not None and len(remark) > _MOST_REMARK:
        answer.remark = f"{remark[:_MOST_REMARK]}... ({len(remark)} characters)"
    return encode_frame(answer)


def error_answer(code: int, error: BaseException) -> Command:
    """The answer for an error of a handler; an unforeseen one is logged with its trace."""
    if isinstance(error, BrokerResponseError):
        return response(error.code, error.remark)
    log.error("request code %d failed", code, exc_info=error)
    return response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def body_too_long(code: int, length: int, limit: int) -> Command:
    """The answer to a request whose body is longer than its route takes."""
    return response(
        ResponseCode.SYSTEM_ERROR,
        f"maxRequestBodySize: the body of request code {code} has {length:,} bytes, over the limit of {limit:,}; "
        "split the request or raise maxRequestBodySize",
    )
