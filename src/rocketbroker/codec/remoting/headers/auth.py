"""Administration of users and policies (3001 to 3010).

A subject is ``User:<name>``. All fields are optional on the wire; the broker says which one a request lacks.
``access_key`` is the user that signed the request; the signature of a client adds it.
"""

import msgspec

from rocketbroker.codec.remoting.remoting_command import CommandCustomHeader


class CreateUserRequestHeader(CommandCustomHeader, gc=False):
    """Code 3001; the body is a UserInfo."""

    username: str | None = None
    access_key: str | None = msgspec.field(name="AccessKey", default=None)


class UpdateUserRequestHeader(CommandCustomHeader, gc=False):
    """Code 3002; the body is a UserInfo."""

    username: str | None = None
    access_key: str | None = msgspec.field(name="AccessKey", default=None)


class DeleteUserRequestHeader(CommandCustomHeader, gc=False):
    """Code 3003; the policies of the user are deleted as well."""

    username: str | None = None
    access_key: str | None = msgspec.field(name="AccessKey", default=None)


class GetUserRequestHeader(CommandCustomHeader, gc=False):
    """Code 3004."""

    username: str | None = None


class ListUsersRequestHeader(CommandCustomHeader, gc=False):
    """Code 3005. ``filter``: part of the names to list.

    A slave of ours asks for a copy of the whole table by ``copy_key_id``, the id of the key that seals secrets in it,
    and ``copy_nonce``, a random text for the MAC of the answer.
    """

    filter: str | None = None
    copy_key_id: str | None = None
    copy_nonce: str | None = None
    access_key: str | None = msgspec.field(name="AccessKey", default=None)


class ListUsersResponseHeader(CommandCustomHeader, gc=False):
    """Answer to 3005 with a copy of the table: its MAC, of the nonce and the body."""

    copy_tag: str | None = None


class CreateAclRequestHeader(CommandCustomHeader, gc=False):
    """Code 3006; the body is an AclInfo."""

    subject: str | None = None


class UpdateAclRequestHeader(CommandCustomHeader, gc=False):
    """Code 3007; the body is an AclInfo."""

    subject: str | None = None


class DeleteAclRequestHeader(CommandCustomHeader, gc=False):
    """Code 3008; without a resource all policies of the subject are deleted."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class GetAclRequestHeader(CommandCustomHeader, gc=False):
    """Code 3009."""

    subject: str | None = None


class ListAclsRequestHeader(CommandCustomHeader, gc=False):
    """Code 3010. Each filter is a part of the subjects or resources to list."""

    subject_filter: str | None = None
    resource_filter: str | None = None
