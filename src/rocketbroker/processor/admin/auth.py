"""Users and policies of access control (AdminBrokerProcessor)."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from rocketbroker.auth.access_store import AccessStore
from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.errors import AuthConflictError, AuthError, AuthValueError
from rocketbroker.auth.policies import Acl, parse_acl, parse_policy_type, parse_resource, parse_subject
from rocketbroker.auth.secret_seal import NONCE_LENGTH, SecretSeal
from rocketbroker.auth.users import UserType, by_word, check_name, check_new_secret
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.auth import AclInfo, UserInfo
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.auth import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    ListUsersResponseHeader,
    UpdateAclRequestHeader,
    UpdateUserRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.processor.support.request_family import NO_CHANGES, answers

_MOST_VALUES = 5_000
# Policies above are read on a thread: 10,000 entries take 0.3 s.
_LARGE_BODY: Final = 32 << 10


@dataclass(frozen=True, slots=True)
class AuthRequests:
    """Requests for users and policies. No answer has a secret, and each change is on disk before its answer.

    Attributes:
        store: the table; ``None`` without access control.
        copy_seal: seals the secrets in copies for slaves and proxies; ``None`` if none can have one.
    """

    store: AccessStore | None
    copy_seal: SecretSeal | None = None

    @answers(RequestCode.AUTH_CREATE_USER, CreateUserRequestHeader, at_slave=NO_CHANGES)
    async def auth_create_user(
        self, _connection: Connection, command: RemotingCommand[CreateUserRequestHeader]
    ) -> Command:
        """Create a user; only a Super user may create another one.

        Raises:
            BrokerResponseError: INVALID_PARAMETER for a value that is not valid, NO_PERMISSION if there is such a user,
                SYSTEM_ERROR if the caller may not create it, or if the table cannot be written.
        """
        store, header = self._table(), command.header
        info = _user(command, header.username)
        if _is_super(info) and not _signed_by_super(store.rules, header.access_key):
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
        await _done(store.create_user(info))
        return response()

    @answers(RequestCode.AUTH_UPDATE_USER, UpdateUserRequestHeader, at_slave=NO_CHANGES)
    async def auth_update_user(
        self, _connection: Connection, command: RemotingCommand[UpdateUserRequestHeader]
    ) -> Command:
        """Change a user; fields that the body lacks stay, and only a Super user may change or make another one.

        Raises:
            BrokerResponseError: INVALID_PARAMETER for a value that is not valid, NO_PERMISSION if there is no such
                user or it is a Super user, SYSTEM_ERROR if the caller may not make a Super user, or if the table cannot
                be written.
        """
        store, header = self._table(), command.header
        info = _user(command, header.username)
        by_super = _signed_by_super(store.rules, header.access_key)
        if _is_super(info) and not by_super:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user")
        await _done(store.update_user(info, by_super=by_super))
        return response()

    @answers(RequestCode.AUTH_DELETE_USER, DeleteUserRequestHeader, at_slave=NO_CHANGES)
    async def auth_delete_user(
        self, _connection: Connection, command: RemotingCommand[DeleteUserRequestHeader]
    ) -> Command:
        """Delete a user with its policies; an unknown one is no error, and only a Super user may delete another one.

        Raises:
            BrokerResponseError: INVALID_PARAMETER for a name that is not valid, NO_PERMISSION for a Super user,
                SYSTEM_ERROR if the table cannot be written.
        """
        store, header = self._table(), command.header
        by_super = _signed_by_super(store.rules, header.access_key)
        await _done(store.delete_user(header.username, by_super=by_super))
        return response()

    @answers(RequestCode.AUTH_GET_USER, GetUserRequestHeader)
    def auth_get_user(self, _connection: Connection, command: RemotingCommand[GetUserRequestHeader]) -> Command:
        """Answer a user without its secret; the body is empty if there is none.

        Raises:
            BrokerResponseError: INVALID_PARAMETER for a name that is not valid.
        """
        store = self._table()
        with _valid():
            user = store.rules.users.get(check_name(command.header.username))
        return response(body=b"" if user is None else user.info().encode())

    @answers(RequestCode.AUTH_LIST_USER, ListUsersRequestHeader)
    async def auth_list_user(
        self, _connection: Connection, command: RemotingCommand[ListUsersRequestHeader]
    ) -> Command:
        """Answer the users whose names contain the filter, without secrets; the body is empty if there is none.

        A slave or a proxy gets a copy of users and policies, with secrets sealed by a key that both derive from
        innerClientAuthenticationCredentials, and with a MAC.

        Raises:
            BrokerResponseError: NO_PERMISSION for a copy that is not for a Super user, INVALID_PARAMETER if the servers
                have different inner credentials, or without a nonce.
        """
        store, header = self._table(), command.header
        if header.copy_key_id:
            return await self._copy(store, header)
        part = header.filter or ""
        found = [user.info() for name, user in sorted(store.rules.users.items()) if part in name]
        return response(body=fastjson.dumps(found) if found else b"")

    async def _copy(self, store: AccessStore, header: ListUsersRequestHeader) -> Command:
        seal, nonce = self.copy_seal, header.copy_nonce or ""
        if not _signed_by_super(store.rules, header.access_key):
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, "Only a Super user gets a copy of users and policies")
        if seal is None or seal.key_id != header.copy_key_id:
            raise BrokerResponseError(
                ResponseCode.INVALID_PARAMETER,
                "innerClientAuthenticationCredentials of the two servers differ; give both the same",
            )
        if len(nonce) != 2 * NONCE_LENGTH:
            raise BrokerResponseError(
                ResponseCode.INVALID_PARAMETER,
                f"copyNonce has {len(nonce):,} characters; send {2 * NONCE_LENGTH} random hexadecimal digits",
            )
        body = (await store.copy(seal)).encode()
        return response(header=ListUsersResponseHeader(seal.copy_tag(nonce, body)), body=body)

    @answers(RequestCode.AUTH_CREATE_ACL, CreateAclRequestHeader, at_slave=NO_CHANGES)
    async def auth_create_acl(
        self, _connection: Connection, command: RemotingCommand[CreateAclRequestHeader]
    ) -> Command:
        """Add policies of a user; an entry replaces the one for the same resource.

        Raises:
            BrokerResponseError: INVALID_PARAMETER for a value that is not valid, NO_PERMISSION if there is no such
                user, SYSTEM_ERROR if the table cannot be written.
        """
        return await self._merge(command.header.subject, command)

    @answers(RequestCode.AUTH_UPDATE_ACL, UpdateAclRequestHeader, at_slave=NO_CHANGES)
    async def auth_update_acl(
        self, _connection: Connection, command: RemotingCommand[UpdateAclRequestHeader]
    ) -> Command:
        """Add policies of a user, as AUTH_CREATE_ACL does."""
        return await self._merge(command.header.subject, command)

    async def _merge(self, subject: str | None, command: Command) -> Command:
        store = self._table()
        body = bytes(command.body or b"{}")
        with _valid():
            if len(body) > _LARGE_BODY:
                acl = await asyncio.to_thread(_acl, subject, body)
            else:
                acl = _acl(subject, body)
        await _done(store.merge_acl(acl))
        return response()

    @answers(RequestCode.AUTH_DELETE_ACL, DeleteAclRequestHeader, at_slave=NO_CHANGES)
    async def auth_delete_acl(
        self, _connection: Connection, command: RemotingCommand[DeleteAclRequestHeader]
    ) -> Command:
        """Delete the entry of a user for one resource, or all its policies without a resource.

        Raises:
            BrokerResponseError: INVALID_PARAMETER for a value that is not valid, NO_PERMISSION if there is no such user
                or it has no policies, SYSTEM_ERROR if the table cannot be written.
        """
        store, header = self._table(), command.header
        with _valid():
            name = parse_subject(header.subject)
            kind = parse_policy_type(header.policy_type)
            resource = parse_resource(header.resource) if header.resource else None
        await _done(store.delete_acl(name, kind, resource))
        return response()

    @answers(RequestCode.AUTH_GET_ACL, GetAclRequestHeader)
    def auth_get_acl(self, _connection: Connection, command: RemotingCommand[GetAclRequestHeader]) -> Command:
        """Answer the policies of a user; the body is empty if it has none.

        Raises:
            BrokerResponseError: INVALID_PARAMETER for a subject that is not valid, NO_PERMISSION if there is no such
                user.
        """
        rules = self._table().rules
        with _valid():
            name = parse_subject(command.header.subject)
        if name not in rules.users:
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, f"The subject is not exist: User:{name}")
        acl = rules.acls.get(name)
        return response(body=b"" if acl is None else acl.info().encode())

    @answers(RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader)
    def auth_list_acl(self, _connection: Connection, command: RemotingCommand[ListAclsRequestHeader]) -> Command:
        """Answer the policies of all users whose subject and resources contain the filters; empty if there is none."""
        header, acls = command.header, self._table().rules.acls
        part, resource = header.subject_filter or "", header.resource_filter or ""
        infos = [acl.info(resource) for _, acl in sorted(acls.items()) if part in acl.subject]
        found = [info for info in infos if info.policies]
        return response(body=fastjson.dumps(found) if found else b"")

    def _table(self) -> AccessStore:
        if self.store is None:
            raise BrokerResponseError(
                ResponseCode.SYSTEM_ERROR,
                "access control is off here: start the server with authenticationEnabled=true and "
                "initAuthenticationUser, so that it keeps users and policies",
            )
        return self.store


def _user(command: Command, name: str | None) -> UserInfo:
    """Return the body of a request, with the name in the header."""
    if not name:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, "The username is blank; give the name of the user")
    with _valid():
        info = UserInfo.decode(bytes(command.body or b"{}"), most_values=_MOST_VALUES)
        if info.password and info.password.strip():
            check_new_secret(name, info.password)
    info.username = name
    return info


def _acl(subject: str | None, body: bytes) -> Acl:
    """Return the policies in the body of a request.

    Raises:
        AuthValueError: They are not valid.
        CodecError: The body cannot be read.
    """
    return parse_acl(subject, AclInfo.decode(body, most_values=_MOST_VALUES))


def _is_super(info: UserInfo) -> bool:
    return by_word(UserType, info.user_type or "") is UserType.SUPER


def _signed_by_super(rules: AccessRules, access_key: str | None) -> bool:
    """Return true if a Super user signed a request; the guard has checked the signature."""
    caller = rules.users.get(access_key or "")
    return caller is not None and caller.is_super


@contextmanager
def _valid() -> Iterator[None]:
    """Answer a body or a value that is not valid by INVALID_PARAMETER, with what is wrong."""
    try:
        yield
    except (AuthValueError, CodecError) as error:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, str(error)) from None


async def _done(change: Awaitable[None]) -> None:
    """Wait until a change is on disk; reject it with the reason."""
    try:
        await change
    except AuthConflictError as error:
        raise BrokerResponseError(ResponseCode.NO_PERMISSION, str(error)) from None
    except AuthValueError as error:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, str(error)) from None
    except AuthError as error:
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from None
