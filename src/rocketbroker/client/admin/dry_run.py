"""Admin client for ``mqadmin --dry-run``: it reads from the servers, and lists the requests that would change them."""

from typing import Any, Final, cast

import msgspec

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.requests import client_request
from rocketbroker.codec.remoting.bodies.auth import UserInfo
from rocketbroker.codec.remoting.remoting_command import Command, to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RocketBrokerError

# Requests that read are sent. Their names begin so; one that this misses is listed instead of sent, which does no harm.
_READING: Final = (
    "GET_",
    "QUERY_",
    "VIEW_",
    "SEARCH_",
    "CHECK_",
    "AUTH_GET_",
    "AUTH_LIST_",
    "WHO_",
    "INVOKE_BROKER_TO_GET_",
)
_SHOWN_BODY: Final = 500
_WITH_PASSWORD: Final = (RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER)
#: Text of NotSentError, which names it among the failures of a report.
NOT_SENT: Final = "the answer is not known, since the request was not sent"


class PlannedRequest(msgspec.Struct, rename="camel"):
    """A request that would have been sent; ``body`` is text, without passwords, and cut at 500 characters."""

    address: str
    request: str
    code: int
    fields: dict[str, str]
    body: str

    def __str__(self) -> str:
        fields = "".join(f" {name}={value}" for name, value in self.fields.items())
        return f"would send {self.request} ({self.code}) to {self.address}:{fields}{self.body and f' body={self.body}'}"


def _shown(command: Command) -> bytes:
    """Return the body of a request, without a password."""
    if command.code not in _WITH_PASSWORD:
        return bytes(command.body)
    user = UserInfo.decode(command.body)
    return msgspec.structs.replace(user, password="******" if user.password else None).encode()


def is_reading(code: int) -> bool:
    """Return true if a request is known to change nothing."""
    try:
        return RequestCode(code).name.startswith(_READING)
    except ValueError:
        return False


class NotSentError(RocketBrokerError):
    """Use of the contents of an answer to a request that a dry run has not sent."""

    def __init__(self) -> None:
        super().__init__(NOT_SENT)


class _NoAnswer:
    """Success, without contents: whoever reads them learns that there are none."""

    code: Final = ResponseCode.SUCCESS
    remark: Final = None

    @property
    def body(self) -> bytes:
        raise NotSentError

    @property
    def header(self) -> Any:
        raise NotSentError


class DryRunClient(AdminClient):
    """An admin client that sends only requests that read.

    A request that would change something succeeds. Reading the contents of its answer raises NotSentError, so the
    caller may not come to the requests that depend on them.

    Attributes:
        planned: the requests that were not sent.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.planned: list[PlannedRequest] = []

    async def _invoke(self, address: str, command: Command, timeout_s: float | None = None) -> Command:
        if is_reading(command.code):
            return await super()._invoke(address, command, timeout_s)
        return self._plan(address, command)

    async def _ask_name_servers(self, code: int, header: object = None, body: bytes = b"") -> dict[str, Command]:
        if is_reading(code):
            return await super()._ask_name_servers(code, header, body)
        addresses = await self._name_server.addresses()
        return {address: self._plan(address, client_request(code, header, body)) for address in addresses}

    async def _ask_name_server(self, code: int, header: object = None) -> Command:
        if is_reading(code):
            return await super()._ask_name_server(code, header)
        return self._plan((await self._name_server.addresses())[0], client_request(code, header))

    def _plan(self, address: str, command: Command) -> Command:
        body = _shown(command).decode(errors="replace")[:_SHOWN_BODY]
        name = RequestCode(command.code).name if command.code in set(RequestCode) else str(command.code)
        self.planned.append(PlannedRequest(address, name, command.code, to_ext_fields(command.header) or {}, body))
        return cast("Command", _NoAnswer())
