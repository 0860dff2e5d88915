"""State of a slave, and the requests that it rejects with Apache's codes: all that change messages or tables."""

from typing import Final, Protocol

from rocketbroker.codec.remoting.handler import Connection, Guard, Route
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

_NO_MESSAGES: Final = "this broker is a slave and takes no messages; send to the master"
_NO_OUTCOMES: Final = "this broker is a slave and ends no transaction; send the outcome to the master"
_NO_RECALLS: Final = "this broker is a slave and recalls no messages; recall them at the master"
_NO_CHANGES: Final = "this broker is a slave, whose tables follow those of its master; make the change at the master"
_NO_RESETS: Final = "this broker is a slave, whose offsets follow those of its master; reset them at the master"

_REFUSALS: Final = {
    # SendMessageProcessor.rejectRequest: clients try the next broker.
    RequestCode.SEND_MESSAGE: (ResponseCode.SYSTEM_BUSY, _NO_MESSAGES),
    RequestCode.SEND_MESSAGE_V2: (ResponseCode.SYSTEM_BUSY, _NO_MESSAGES),
    RequestCode.SEND_BATCH_MESSAGE: (ResponseCode.SYSTEM_BUSY, _NO_MESSAGES),
    RequestCode.CONSUMER_SEND_MSG_BACK: (ResponseCode.SYSTEM_BUSY, _NO_MESSAGES),
    RequestCode.SEND_REPLY_MESSAGE: (ResponseCode.SERVICE_NOT_AVAILABLE, _NO_MESSAGES),
    RequestCode.SEND_REPLY_MESSAGE_V2: (ResponseCode.SERVICE_NOT_AVAILABLE, _NO_MESSAGES),
    RequestCode.END_TRANSACTION: (ResponseCode.SLAVE_NOT_AVAILABLE, _NO_OUTCOMES),
    RequestCode.RECALL_MESSAGE: (ResponseCode.SLAVE_NOT_AVAILABLE, _NO_RECALLS),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: (ResponseCode.SYSTEM_ERROR, _NO_OUTCOMES),
    RequestCode.UPDATE_AND_CREATE_TOPIC: (ResponseCode.SYSTEM_ERROR, _NO_CHANGES),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: (ResponseCode.SYSTEM_ERROR, _NO_CHANGES),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (ResponseCode.SYSTEM_ERROR, _NO_CHANGES),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (ResponseCode.SYSTEM_ERROR, _NO_CHANGES),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (ResponseCode.SYSTEM_ERROR, _NO_CHANGES),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (ResponseCode.SYSTEM_ERROR, _NO_RESETS),
    RequestCode.CLONE_GROUP_OFFSET: (ResponseCode.SYSTEM_ERROR, _NO_RESETS),
}


class SlaveState(Protocol):
    """State of a slave towards its master."""

    def has_master(self) -> bool:
        """Return true while the master answers; false while the slave acts as master."""

    def acting_as(self) -> int | None:
        """Return the id by which consumers reach this slave while it acts as master, else ``None``."""


def with_slave_refusals(routes: dict[int, Route]) -> dict[int, Route]:
    """Return the routes of a slave: those of a master, with guards before the requests that it rejects."""
    return {code: _guarded(route) for code, route in routes.items()}


def _guarded(route: Route) -> Route:
    refusal = _REFUSALS.get(RequestCode(route.code))
    return route if refusal is None else route.guarded(_guard(*refusal))


def _guard(code: ResponseCode, remark: str) -> Guard:
    def refuse(_connection: Connection, _command: Command) -> None:
        raise BrokerResponseError(code, remark)

    return refuse
