"""Changes that both servers know, as the audit log describes them: users and policies, and settings."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from rocketbroker.auth.access_store import AccessStore
from rocketbroker.auth.errors import AuthValueError
from rocketbroker.auth.policies import Acl, PolicyType, parse_subject
from rocketbroker.codec.remoting.bodies.auth import AclInfo, UserInfo
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config.current_settings import parse_updates
from rocketbroker.common.config.fields import ConfigModel, fields_by_name, shown_text
from rocketbroker.common.errors import ConfigError
from rocketbroker.processor.support.audited import MOST_NAMES, AuditedCode, header_fields
from rocketbroker.processor.support.request_checks import read_body

# Of a body that is read once more for the audit; the handler reads a larger one on a thread.
_MOST_BYTES: Final = 32 * 1024


def user_changes(store: AccessStore | None) -> dict[int, AuditedCode]:
    """Return the changes of users and policies; none without access control."""
    if store is None:
        return {}

    def user(command: Command) -> object:
        found = store.rules.users.get(command.header.username)
        return None if found is None else plain(found.info())

    def user_and_policies(command: Command) -> object:
        return {"user": user(command), "acl": _acl(command.header.username)}

    def acl(command: Command) -> object:
        try:
            return _acl(parse_subject(command.header.subject), _resources(command))
        except AuthValueError:
            return None

    def _acl(name: str, resources: Collection[str] = ()) -> object:
        found = store.rules.acls.get(name)
        return None if found is None else _entries(found, resources)

    return {
        RequestCode.AUTH_CREATE_USER: AuditedCode(user, user_fields),
        RequestCode.AUTH_UPDATE_USER: AuditedCode(user, user_fields),
        RequestCode.AUTH_DELETE_USER: AuditedCode(user_and_policies),
        RequestCode.AUTH_CREATE_ACL: AuditedCode(acl),
        RequestCode.AUTH_UPDATE_ACL: AuditedCode(acl),
        RequestCode.AUTH_DELETE_ACL: AuditedCode(acl),
    }


def _resources(command: Command) -> Collection[str]:
    """Return the resources whose entries a request writes or deletes; none if it may be all, or too many to read."""
    if command.code == RequestCode.AUTH_DELETE_ACL:
        return {command.header.resource} if command.header.resource else ()
    if len(command.body) > _MOST_BYTES:
        return ()
    policies = read_body(command.body, AclInfo).policies or []
    return {entry.resource or "" for policy in policies for entry in policy.entries or []}


def _entries(acl: Acl, resources: Collection[str]) -> object:
    """Return the entries for some resources, for all if none is given; the first hundred, as there may be thousands."""
    found = [
        (kind.word, entry)
        for kind in PolicyType
        for entry in acl.entries(kind)
        if not resources or str(entry.resource) in resources
    ]
    shown = [{"policyType": kind, "entry": plain(entry.info())} for kind, entry in found[:MOST_NAMES]]
    return [*shown, f"{len(found) - MOST_NAMES} more"] if len(found) > MOST_NAMES else shown


def user_fields(command: Command) -> dict[str, object]:
    """Return the fields of a user that a request sets; stars stand for the password."""
    info = read_body(command.body, UserInfo)
    given = {"userType": info.user_type, "userStatus": info.user_status, "password": info.password and "******"}
    return header_fields(command) | {name: value for name, value in given.items() if value is not None}


def settings_state(models: Sequence[ConfigModel]) -> Callable[[Command], object]:
    """Return a function that shows the settings which a request names; stars stand for secrets."""

    def state(command: Command) -> object:
        try:
            named = list(parse_updates(bytes(command.body)))
        except ConfigError:
            return None
        found: dict[str, str] = {}
        for model in models:
            table = fields_by_name(type(model))
            for name in named[:MOST_NAMES]:
                if name in table:
                    attribute, field = table[name]
                    found[name] = shown_text(getattr(model, attribute), field)
        return found

    return state


def plain(value: object) -> object:
    """Return a struct, or a table of them, as JSON values."""
    return None if value is None else msgspec.to_builtins(value, str_keys=True)
