"""Requests as this client sends them, and what becomes of answers (org.apache.rocketmq.client.impl.MQClientAPIImpl)."""

from typing import TypeVar

from rocketbroker.client.broker_errors import broker_error
from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader, from_ext_fields, request
from rocketbroker.codec.remoting.response_code import ResponseCode

LANGUAGE = "PYTHON"

T = TypeVar("T", bound=CommandCustomHeader)


def client_request(code: int, header: object = None, body: bytes = b"", *, oneway: bool = False) -> Command:
    """Make a request with this client's language code."""
    command = request(code, header, body, oneway=oneway)
    command.language = LANGUAGE
    return command


def check_success(answer: Command) -> Command:
    """Return the answer if it reports success.

    Raises:
        BrokerResponseError: It reports something else.
    """
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(answer.code, answer.remark)
    return answer


def answer_header(answer: Command, header_type: type[T]) -> T:
    """Return the typed header of a successful answer.

    Raises:
        BrokerResponseError: the answer is one other than success.
        CodecError: a field is missing or mistyped.
    """
    return from_ext_fields(check_success(answer).header, header_type)
