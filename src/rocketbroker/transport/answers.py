"""Encoding of responses, including those to errors and deferred ones."""

import logging
from collections.abc import Awaitable, Callable

from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import HELD, Answer, InTurn, Response
from rocketbroker.codec.remoting.remoting_command import FLAG_RESPONSE, Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

log = logging.getLogger(__name__)


# Characters; a remark that quotes the request could fill a frame.
_MOST_REMARK = 4096


def encode_answer(command: Command, answer: Command) -> bytes:
    """Encode the answer to a request; an answer that cannot be encoded becomes an error answer."""
    try:
        return _encode(command.opaque, answer)
    except Exception as error:  # noqa: BLE001 - logged and answered; the connection continues
        return _encode(command.opaque, error_answer(command.code, error))


def _encode(opaque: int, answer: Command) -> bytes:
    answer.opaque = opaque
    answer.flag |= FLAG_RESPONSE
    remark = answer.remark
    if remark is not None and len(remark) > _MOST_REMARK:
        answer.remark = f"{remark[:_MOST_REMARK]}... ({len(remark)} characters)"
    return encode_frame(answer)


async def made_in_turn(make: Callable[[], Answer]) -> Response:
    """Return a response that was deferred because its peer was too far behind."""
    answer = make()
    assert answer is not HELD, "a held request is not held again"
    work = answer.work if isinstance(answer, InTurn) else answer
    return await work if isinstance(work, Awaitable) else work


def error_answer(code: int, error: BaseException) -> Command:
    """Return the answer for a handler's error; log an unexpected error with its traceback."""
    if isinstance(error, BrokerResponseError):
        return response(error.code, error.remark)
    log.error("request code %d failed", code, exc_info=error)
    return response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def body_too_long(code: int, length: int, limit: int) -> Command:
    """Return the answer to a request whose body exceeds the limit."""
    return response(
        ResponseCode.SYSTEM_ERROR,
        f"maxRequestBodySize: the body of request code {code} has {length:,} bytes, above the limit of {limit:,}; "
        "split the request or raise maxRequestBodySize",
    )
