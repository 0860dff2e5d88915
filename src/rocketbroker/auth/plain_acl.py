"""Users and policies of access control 1.0, read from ``plain_acl.yml`` and its folder (AuthMigrator).

    file    := {globalWhiteRemoteAddresses: [address], accounts: [account]}
    account := {accessKey, secretKey, whiteRemoteAddress, admin: bool, defaultTopicPerm, defaultGroupPerm,
                topicPerms: [name '=' permission], groupPerms: [name '=' permission]}
    permission := 'DENY' | 'PUB' | 'SUB' | 'PUB|SUB' | 'SUB|PUB'

An account becomes a user, Super if ``admin``. Permissions of topics and groups become Custom entries, the defaults
become Default entries for ``Topic:*`` and ``Group:*``; DENY denies All. The first account of a name counts, in the
order of the files. White addresses have no counterpart and are reported.

Apache's migrator skips what it cannot read and takes an unknown permission for All. Here both are errors with the path
of the field, since a migrated policy must not say less or more than the file. It also gives a permission of a retry
topic to the topic, where no request is checked for it; here it goes to the group.

The YAML is plain data of bounded size: aliases, anchors and tags are errors, so that it cannot grow when it is read or
name a class. Numbers and dates are their texts, since keys and names often are digits alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from rocketbroker.auth.errors import AuthValueError
from rocketbroker.auth.policies import (
    Acl,
    Action,
    Decision,
    PolicyEntry,
    Resource,
    ResourcePattern,
    ResourceType,
    parse_resource,
)
from rocketbroker.auth.users import User, UserType, check_name, check_secret
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.common.errors import ConfigError

MAX_FILE_SIZE: Final = 1 << 20
MAX_FILES: Final = 1_000
_MAX_DEPTH: Final = 8
_MAX_FOLDERS: Final = 8

_PERMISSIONS: Final = {
    "DENY": ((Action.ALL,), Decision.DENY),
    "PUB": ((Action.PUB,), Decision.ALLOW),
    "SUB": ((Action.SUB,), Decision.ALLOW),
    "PUB|SUB": ((Action.PUB, Action.SUB), Decision.ALLOW),
    "SUB|PUB": ((Action.PUB, Action.SUB), Decision.ALLOW),
}
_TOP_FIELDS: Final = {"globalWhiteRemoteAddresses", "accounts", "dataVersion"}
_ACCOUNT_FIELDS: Final = {
    "accessKey",
    "secretKey",
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
}


class Migration(NamedTuple):
    """Result of reading the files; ``remarks`` are lines for the log on what has no counterpart."""

    users: list[User]
    acls: list[Acl]
    remarks: list[str]


class _Scalar(NamedTuple):
    text: str
    is_plain: bool

    @property
    def is_null(self) -> bool:
        return self.is_plain and self.text in {"", "~", "null", "Null", "NULL"}


_Node: TypeAlias = _Scalar | list[Any] | dict[str, Any]


def plain_acl_files(conf: Path, main: Path | None = None) -> list[Path]:
    """Return the files of access control 1.0 in the order in which they count (blocks).

    Args:
        conf: the folder ``conf`` below ROCKETMQ_HOME; its ``acl`` is searched with the folders in it.
        main: the file of the property ``rocketmq.acl.plain.file``; by default ``plain_acl.yml`` in ``conf``.

    Raises:
        ConfigError: There are too many, or a folder cannot be read.
    """
    try:
        found = list(_below(conf / "acl", _MAX_FOLDERS)) if (conf / "acl").is_dir() else []
        main = main or conf / "plain_acl.yml"
        if main.is_file() and main not in found:
            found.append(main)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be read: {error.strerror}") from error
    if len(found) > MAX_FILES:
        raise ConfigError(f"{conf / 'acl'}: {len(found):,} files exceed the limit of {MAX_FILES:,}")
    return found


def _below(folder: Path, depth: int) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.suffix in {".yml", ".yaml"}:
            yield path
        elif depth > 0 and path.is_dir() and not path.is_symlink():
            yield from _below(path, depth - 1)


def read_plain_acl(paths: Iterable[Path]) -> Migration:
    """Return the users and policies in some files (blocks).

    Raises:
        AuthValueError: A file is not valid; the text has the path of the field and never a secret.
        ConfigError: A file cannot be read, or PyYAML is not installed.
    """
    users: dict[str, User] = {}
    acls: list[Acl] = []
    remarks: list[str] = []
    for path in paths:
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_SIZE + 1)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        top = _fields(_parse(data, str(path)), f"{path}", _TOP_FIELDS)
        if _list(top.get("globalWhiteRemoteAddresses"), f"{path}: globalWhiteRemoteAddresses"):
            remarks.append(
                f"{path}: globalWhiteRemoteAddresses are not migrated: a policy with source addresses allows a user "
                "from there"
            )
        for number, account in enumerate(_list(top.get("accounts"), f"{path}: accounts")):
            where = f"{path}: accounts[{number}]"
            fields = _fields(account, where, _ACCOUNT_FIELDS)
            user = _user(fields, where)
            if user.name in users:
                remarks.append(f"{where}: {user.name} was read before, and the first account counts")
                continue
            users[user.name] = user
            if acl := _acl(user.name, fields, where):
                acls.append(acl)
            if _text(fields, "whiteRemoteAddress", where):
                remarks.append(
                    f"{where}.whiteRemoteAddress of {user.name} is not migrated: the user must sign from there"
                )
    return Migration(list(users.values()), acls, remarks)


def _user(fields: dict[str, Any], where: str) -> User:
    try:
        name = check_name(_text(fields, "accessKey", where))
        secret = check_secret(name, _text(fields, "secretKey", where))
    except AuthValueError as error:
        raise AuthValueError(f"{where}: {error}") from None
    return User(name, secret, UserType.SUPER if _bool(fields, "admin", where) else UserType.NORMAL)


def _acl(name: str, fields: dict[str, Any], where: str) -> Acl | None:
    custom: dict[Resource, PolicyEntry] = {}
    for field, kind in (("topicPerms", ResourceType.TOPIC), ("groupPerms", ResourceType.GROUP)):
        for number, item in enumerate(_list(fields.get(field), f"{where}.{field}")):
            at = f"{where}.{field}[{number}]"
            entry = _entry(item, kind, at)
            if custom.setdefault(entry.resource, entry) != entry:
                raise AuthValueError(f"{at}: {entry.resource} has another permission above; give one")
    default = []
    for field, kind in (("defaultTopicPerm", ResourceType.TOPIC), ("defaultGroupPerm", ResourceType.GROUP)):
        if word := _text(fields, field, where).strip():
            actions, decision = _permission(word, f"{where}.{field}")
            default.append(PolicyEntry(Resource(kind, "", ResourcePattern.ANY), actions, decision))
    return Acl(name, tuple(custom.values()), tuple(default)) if custom or default else None


def _entry(item: _Node, kind: ResourceType, where: str) -> PolicyEntry:
    text = item.text if isinstance(item, _Scalar) else ""
    name, equals, word = (part.strip() for part in text.partition("="))
    if not equals or "=" in word:
        raise AuthValueError(f"{where}: {text[:64]!r} is not <name>=<permission>, such as orders=PUB|SUB")
    if kind is ResourceType.TOPIC and name.startswith(RETRY_GROUP_TOPIC_PREFIX):
        kind, name = ResourceType.GROUP, name.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
    resource = parse_resource(f"{kind.word}:{name}", where)
    if resource.pattern is not ResourcePattern.LITERAL:
        raise AuthValueError(f"{where}: {name[:64]!r} has a *, which is not a part of a name in access control 1.0")
    return PolicyEntry(resource, *_permission(word, where))


def _permission(word: str, where: str) -> tuple[tuple[Action, ...], Decision]:
    found = _PERMISSIONS.get(word)
    if found is None:
        raise AuthValueError(f"{where}: permission {word[:32]!r} is unknown; give one of {', '.join(_PERMISSIONS)}")
    return found


def _fields(node: _Node, where: str, known: set[str]) -> dict[str, Any]:
    if isinstance(node, _Scalar) and node.is_null:
        return {}
    if not isinstance(node, dict):
        raise AuthValueError(f"{where}: it is a {_kind(node)}, and must have fields such as {min(known)}")
    for name in node:
        if name not in known:
            raise AuthValueError(f"{where}: the field {name[:64]!r} is unknown; known are {', '.join(sorted(known))}")
    return node


def _list(node: _Node | None, where: str) -> Sequence[_Node]:
    if node is None or (isinstance(node, _Scalar) and node.is_null):
        return []
    if not isinstance(node, list):
        raise AuthValueError(f"{where}: it is a {_kind(node)}, and must be a list")
    return node


def _text(fields: dict[str, Any], name: str, where: str) -> str:
    node: _Node | None = fields.get(name)
    if node is None:
        return ""
    if not isinstance(node, _Scalar):
        raise AuthValueError(f"{where}.{name}: it is a {_kind(node)}, and must be a text")
    return "" if node.is_null else node.text


def _bool(fields: dict[str, Any], name: str, where: str) -> bool:
    text = _text(fields, name, where).lower()
    if text not in {"", "true", "yes", "on", "false", "no", "off"}:
        raise AuthValueError(f"{where}.{name}: {text[:32]!r} is not true or false")
    return text in {"true", "yes", "on"}


def _kind(node: _Node) -> str:
    return "text" if isinstance(node, _Scalar) else "list" if isinstance(node, list) else "table"


def _parse(data: bytes, where: str) -> _Node:
    """Return the one document in a file as plain lists, tables and texts.

    The tree is built from parser events, so nothing is constructed that a tag names, and no alias is followed.

    Raises:
        AuthValueError: It is too large, not UTF-8, not YAML, or has more than plain data.
        ConfigError: PyYAML is not installed.
    """
    if len(data) > MAX_FILE_SIZE:
        raise AuthValueError(f"{where}: it exceeds the limit of {MAX_FILE_SIZE:,} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AuthValueError(f"{where}: byte {error.start} is not UTF-8") from None
    try:
        import yaml
    except ImportError as error:
        raise ConfigError(f"{where} needs PyYAML: pip install 'rocketbroker[migration]'") from error
    builder = _Builder(where)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            builder.take(event, yaml)
    except yaml.MarkedYAMLError as error:
        # The text of the error itself may show a line with a secret.
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise AuthValueError(f"{where}: {line}it is not YAML: {error.problem}") from None
    except yaml.YAMLError:
        raise AuthValueError(f"{where}: it is not YAML: it has characters that are not allowed") from None
    return builder.root


class _Builder:
    """Makes the tree of one document, event by event, without recursion."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._open: list[list[Any] | dict[str, Any]] = []
        self._keys: list[str | None] = []
        self._documents = 0
        self.root: _Node = _Scalar("", is_plain=True)

    def take(self, event: Any, yaml: Any) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self._error(event, "it has a second document; give one")
        elif isinstance(event, yaml.AliasEvent):
            raise self._error(event, "aliases are not allowed; write the value out")
        elif isinstance(event, yaml.NodeEvent):
            if event.anchor is not None:
                raise self._error(event, "anchors are not allowed; write each value out")
            if event.tag is not None:
                raise self._error(event, f"the tag {event.tag[:64]!r} is not allowed; write plain values")
            self._take_node(event, yaml)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
            self._keys.pop()

    def _take_node(self, event: Any, yaml: Any) -> None:
        node: _Node
        if isinstance(event, yaml.ScalarEvent):
            node = _Scalar(event.value, not event.style)
        else:
            node = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        self._add(event, node)
        if not isinstance(node, _Scalar):
            if len(self._open) >= _MAX_DEPTH:
                raise self._error(event, f"it is nested deeper than {_MAX_DEPTH} levels")
            self._open.append(node)
            self._keys.append(None)

    def _add(self, event: Any, node: _Node) -> None:
        if not self._open:
            self.root = node
            return
        parent, key = self._open[-1], self._keys[-1]
        if isinstance(parent, list):
            parent.append(node)
        elif key is not None:
            parent[key] = node
            self._keys[-1] = None
        elif not isinstance(node, _Scalar):
            raise self._error(event, "the name of a field must be a text")
        elif node.text in parent:
            raise self._error(event, f"the field {node.text[:64]!r} is there twice")
        else:
            self._keys[-1] = node.text

    def _error(self, event: Any, text: str) -> AuthValueError:
        return AuthValueError(f"{self._where}: line {event.start_mark.line + 1}: {text}")
