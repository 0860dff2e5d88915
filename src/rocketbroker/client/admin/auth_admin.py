"""Administration of users and policies of access control 2.0, which each broker has of its own."""

import re
from typing import Final

from rocketbroker.client.admin.admin_connection import AdminConnection
from rocketbroker.codec.remoting.bodies.auth import AclInfo, UserInfo
from rocketbroker.codec.remoting.bodies.remoting_serializable import decode_body
from rocketbroker.codec.remoting.headers.auth import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateAclRequestHeader,
    UpdateUserRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

_EXISTS: Final = re.compile(r"\bexist(?:ed|s)?\b")


class AuthAdmin(AdminConnection):
    """Calls about users and policies (DefaultMQAdminExt.createUser and its neighbours).

    A broker with access control serves them to a user with a right on its cluster. The password of a user goes to the
    broker in its body, so anybody on the way can read it without TLS.
    """

    async def _ask_access(self, address: str, code: int, header: CommandCustomHeader, body: bytes = b"") -> Command:
        """Return the successful answer of a broker.

        Apache's broker also answers NO_PERMISSION if a user exists or does not; a hint about permissions would mislead
        then, so the error has none.
        """
        try:
            return await self._ask(address, code, header, body)
        except BrokerResponseError as error:
            if error.code == ResponseCode.NO_PERMISSION and _EXISTS.search(error.remark):
                raise BrokerResponseError(error.code, error.remark) from None
            raise

    # -- users

    async def create_user(self, address: str, user: UserInfo) -> None:
        """Create a user on a broker; an error if it exists.

        Args:
            address: ``host:port`` of the broker.
            user: name and password, and the type if it is not Normal.
        """
        await self._ask_access(
            address, RequestCode.AUTH_CREATE_USER, CreateUserRequestHeader(user.username), user.encode()
        )

    async def update_user(self, address: str, user: UserInfo) -> None:
        """Change a user of a broker; fields that are ``None`` stay as they are."""
        await self._ask_access(
            address, RequestCode.AUTH_UPDATE_USER, UpdateUserRequestHeader(user.username), user.encode()
        )

    async def delete_user(self, address: str, username: str) -> None:
        """Delete a user of a broker, and its policies; success if there is none of this name."""
        await self._ask_access(address, RequestCode.AUTH_DELETE_USER, DeleteUserRequestHeader(username))

    async def get_user(self, address: str, username: str) -> UserInfo | None:
        """Return a user of a broker, None if there is none; only Apache's brokers tell its password."""
        answer = await self._ask_access(address, RequestCode.AUTH_GET_USER, GetUserRequestHeader(username))
        return decode_body(answer.body, UserInfo | None) if answer.body else None  # type: ignore[arg-type]

    async def list_user(self, address: str, name_part: str | None = None) -> list[UserInfo]:
        """Return the users of a broker.

        Args:
            address: ``host:port`` of the broker.
            name_part: part of the names; all users without it.
        """
        answer = await self._ask_access(address, RequestCode.AUTH_LIST_USER, ListUsersRequestHeader(name_part))
        return decode_body(answer.body, list[UserInfo]) if answer.body else []

    # -- policies

    async def create_acl(self, address: str, acl: AclInfo) -> None:
        """Add entries to the policies of a user on a broker; one for the same resource is replaced.

        Args:
            address: ``host:port`` of the broker.
            acl: subject, such as ``User:joe``, and policies.
        """
        await self._ask_access(address, RequestCode.AUTH_CREATE_ACL, CreateAclRequestHeader(acl.subject), acl.encode())

    async def update_acl(self, address: str, acl: AclInfo) -> None:
        """Add entries to the policies of a user, as ``create_acl`` does."""
        await self._ask_access(address, RequestCode.AUTH_UPDATE_ACL, UpdateAclRequestHeader(acl.subject), acl.encode())

    async def delete_acl(self, address: str, subject: str, resource: str | None = None) -> None:
        """Delete the entry of a subject for a resource, or all its policies without a resource.

        Apache's broker deletes all of them, too, if it does not know the resource.
        """
        header = DeleteAclRequestHeader(subject, None, resource)
        await self._ask_access(address, RequestCode.AUTH_DELETE_ACL, header)

    async def get_acl(self, address: str, subject: str) -> AclInfo | None:
        """Return the policies of a subject on a broker, None if it has none."""
        answer = await self._ask_access(address, RequestCode.AUTH_GET_ACL, GetAclRequestHeader(subject))
        return decode_body(answer.body, AclInfo | None) if answer.body else None  # type: ignore[arg-type]

    async def list_acl(
        self, address: str, subject_part: str | None = None, resource_part: str | None = None
    ) -> list[AclInfo]:
        """Return the policies of the subjects of a broker.

        Args:
            address: ``host:port`` of the broker.
            subject_part: part of the subjects; all without it.
            resource_part: part of the resources of the entries; all without it.
        """
        header = ListAclsRequestHeader(subject_part, resource_part)
        answer = await self._ask_access(address, RequestCode.AUTH_LIST_ACL, header)
        return decode_body(answer.body, list[AclInfo]) if answer.body else []
