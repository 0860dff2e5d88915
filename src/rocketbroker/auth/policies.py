"""Policies of access control (Resource, PolicyEntry, Policy and Acl of org.apache.rocketmq.auth.authorization.model).

    subject  := 'User:' name
    resource := '*' | type ':' ('*' | name | prefix '*')
    type     := 'Cluster' | 'Namespace' | 'Topic' | 'Group'
    action   := 'Pub' | 'Sub' | 'Create' | 'Update' | 'Delete' | 'Get' | 'List' | 'All'
    decision := 'Allow' | 'Deny'
    source   := IPv4 or IPv6 address, or a network such as 10.0.0.0/8

Words are read in any case of letters. Apache's broker skips an action that it does not know, deletes all policies of a
subject if the resource to delete is invalid, and takes ``a`` for the prefix of ``a*b*``. All of these are errors here,
since a policy that says something else than its author meant is worse than one that is rejected.
"""

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, NamedTuple, Self, TypeAlias

import msgspec

from rocketbroker.auth.errors import AuthValueError
from rocketbroker.auth.users import by_word, check_name
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo

#: Entries of one subject.
MAX_ENTRIES: Final = 10_000
#: Source addresses of one entry.
MAX_SOURCES: Final = 256
MAX_RESOURCE_LENGTH: Final = 255

_SUBJECT: Final = "User:"
# Characters of topics and groups (TopicValidator), and the + in names of retry topics of POP.
_TOPIC_NAME: Final = re.compile(r"[%|a-zA-Z0-9_+-]+")
_NAME: Final = re.compile(r"[!-)+-~]+")

Network: TypeAlias = IPv4Network | IPv6Network


class ResourceType(IntEnum):
    """Kind of a resource; the numbers are those of Apache's store."""

    ANY = 1
    CLUSTER = 2
    NAMESPACE = 3
    TOPIC = 4
    GROUP = 5

    @property
    def word(self) -> str:
        """RocketMQ's text."""
        return self.name.capitalize()


class ResourcePattern(IntEnum):
    """Names that a resource stands for; the numbers are those of Apache's store."""

    ANY = 1
    LITERAL = 2
    PREFIXED = 3


class Action(IntEnum):
    """Kind of an access; the numbers are those of Apache's store."""

    ALL = 1
    PUB = 3
    SUB = 4
    CREATE = 5
    UPDATE = 6
    DELETE = 7
    GET = 8
    LIST = 9

    @property
    def word(self) -> str:
        """RocketMQ's text."""
        return self.name.capitalize()


class Decision(IntEnum):
    """Outcome of an entry; the numbers are those of Apache's store."""

    ALLOW = 1
    DENY = 2

    @property
    def word(self) -> str:
        """RocketMQ's text."""
        return self.name.capitalize()


class PolicyType(IntEnum):
    """Rank of a policy: ``DEFAULT`` counts where no ``CUSTOM`` entry matches."""

    CUSTOM = 1
    DEFAULT = 2

    @property
    def word(self) -> str:
        """RocketMQ's text."""
        return self.name.capitalize()


class Resource(NamedTuple):
    """Names of one type, ``name`` being a literal or a prefix; an accessed resource is always a literal."""

    type: ResourceType
    name: str = ""
    pattern: ResourcePattern = ResourcePattern.LITERAL

    @classmethod
    def topic(cls, name: str) -> Self:
        """Return the topic of a request."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def group(cls, name: str) -> Self:
        """Return the group of a request; the name of a retry topic stands for its group."""
        return cls(ResourceType.GROUP, name.removeprefix(RETRY_GROUP_TOPIC_PREFIX))

    @classmethod
    def cluster(cls, name: str) -> Self:
        """Return a cluster."""
        return cls(ResourceType.CLUSTER, name)

    def __str__(self) -> str:
        """Return the text as in a policy (Resource.getResourceKey)."""
        if self.type is ResourceType.ANY:
            return "*"
        star = "" if self.pattern is ResourcePattern.LITERAL else "*"
        return f"{self.type.word}:{self.name}{star}"


ANY_RESOURCE: Final = Resource(ResourceType.ANY, "", ResourcePattern.ANY)


class PolicyEntry(msgspec.Struct, frozen=True):
    """Decision for actions on a resource; without sources it holds for any address."""

    resource: Resource
    actions: tuple[Action, ...]
    decision: Decision
    sources: tuple[str, ...] = ()

    def info(self) -> PolicyEntryInfo:
        """Return the body of the entry."""
        words = [action.word for action in self.actions]
        return PolicyEntryInfo(str(self.resource), words, list(self.sources) or None, self.decision.word)


class Acl(msgspec.Struct, frozen=True):
    """All policies of one user. At most one entry of a policy has a given resource."""

    username: str
    custom: tuple[PolicyEntry, ...] = ()
    default: tuple[PolicyEntry, ...] = ()

    @property
    def subject(self) -> str:
        """RocketMQ's text."""
        return f"{_SUBJECT}{self.username}"

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.custom) + len(self.default)

    def entries(self, kind: PolicyType) -> tuple[PolicyEntry, ...]:
        """Return the entries of one policy."""
        return self.custom if kind is PolicyType.CUSTOM else self.default

    def merged(self, newer: "Acl") -> "Acl":
        """Return these policies with those of ``newer``, whose entries replace those of the same resource.

        Codes 3006 and 3007 both do this (Acl.updatePolicy).

        Raises:
            AuthValueError: There would be too many entries.
        """
        return _checked(
            Acl(self.username, _merged(self.custom, newer.custom), _merged(self.default, newer.default)), self.subject
        )

    def without(self, kind: PolicyType, resource: Resource) -> "Acl":
        """Return these policies without one entry (Acl.deletePolicy)."""
        kept = tuple(entry for entry in self.entries(kind) if entry.resource != resource)
        return Acl(self.username, *((kept, self.default) if kind is PolicyType.CUSTOM else (self.custom, kept)))

    def info(self, resource_filter: str = "") -> AclInfo:
        """Return the body of an answer, with the entries whose resource contains the filter."""
        policies = []
        for kind in PolicyType:
            entries = [entry.info() for entry in self.entries(kind) if resource_filter in str(entry.resource)]
            if entries:
                policies.append(PolicyInfo(kind.word, entries))
        return AclInfo(self.subject, policies or None)


def _merged(older: Sequence[PolicyEntry], newer: Sequence[PolicyEntry]) -> tuple[PolicyEntry, ...]:
    entries = {entry.resource: entry for entry in older}
    entries.update((entry.resource, entry) for entry in newer)
    return tuple(entries.values())


def _checked(acl: Acl, where: str) -> Acl:
    if len(acl) > MAX_ENTRIES:
        raise AuthValueError(
            f"{where}: {len(acl):,} entries exceed the limit of {MAX_ENTRIES:,}; replace entries of single names by "
            "one with a prefix, such as Topic:orders*"
        )
    return acl


def parse_acl(subject: str | None, info: AclInfo) -> Acl:
    """Return the policies that a body describes for the subject of the header, which the body need not repeat.

    Raises:
        AuthValueError: Something is missing or not valid; the text names the policy and the entry, counted from 1.
    """
    username = parse_subject(subject or info.subject)
    if info.subject and parse_subject(info.subject) != username:
        raise AuthValueError(f"subject: the header has {subject!r} and the body {info.subject[:64]!r}; give one")
    if not info.policies:
        raise AuthValueError(f"policies of {_SUBJECT}{username}: there are none; give at least one entry")
    entries: dict[PolicyType, list[PolicyEntry]] = {PolicyType.CUSTOM: [], PolicyType.DEFAULT: []}
    for number, policy in enumerate(info.policies, 1):
        kind = parse_policy_type(policy.policy_type, f"policy {number}")
        where = f"{kind.word} policy of {_SUBJECT}{username}"
        if not policy.entries:
            raise AuthValueError(f"{where}: it has no entries; give at least one")
        if len(policy.entries) > MAX_ENTRIES:
            raise AuthValueError(f"{where}: {len(policy.entries):,} entries exceed the limit of {MAX_ENTRIES:,}")
        entries[kind] += (parse_entry(entry, f"{where}, entry {at}") for at, entry in enumerate(policy.entries, 1))
    for kind, found in entries.items():
        _check_unique(found, f"{kind.word} policy of {_SUBJECT}{username}")
    return _checked(Acl(username, tuple(entries[PolicyType.CUSTOM]), tuple(entries[PolicyType.DEFAULT])), username)


def _check_unique(entries: Iterable[PolicyEntry], where: str) -> None:
    """Reject two entries for a resource: the order of a list must not decide which one counts."""
    seen: dict[Resource, int] = {}
    for number, entry in enumerate(entries, 1):
        first = seen.setdefault(entry.resource, number)
        if first != number:
            raise AuthValueError(f"{where}: entries {first} and {number} are both for {entry.resource}; give one")


def parse_subject(text: str | None) -> str:
    """Return the name of the user that a subject names.

    Raises:
        AuthValueError: It is not ``User:<name>``.
    """
    if not text or not text.strip():
        raise AuthValueError("subject: it is blank; give User:<name>")
    kind, colon, name = text.partition(":")
    if not colon or kind.lower() != "user" or not kind.isascii():
        raise AuthValueError(f"subject {text[:64]!r}: it is not a user; give User:<name>")
    return check_name(name)


def parse_policy_type(word: str | None, where: str = "policyType") -> PolicyType:
    """Return the type of a policy, Custom if it is not given.

    Raises:
        AuthValueError: It is unknown.
    """
    found = by_word(PolicyType, word) if word else PolicyType.CUSTOM
    if found is None:
        raise AuthValueError(f"{where}: type {(word or '')[:32]!r} is unknown; use Custom or Default")
    return found


def parse_entry(info: PolicyEntryInfo, where: str) -> PolicyEntry:
    """Return the entry that a body describes; ``where`` begins the text of an error.

    Raises:
        AuthValueError: Something is missing or not valid.
    """
    resource = parse_resource(info.resource, where)
    where = f"{where} ({resource})"
    decision = by_word(Decision, info.decision or "")
    if decision is None:
        raise AuthValueError(f"{where}: decision {(info.decision or '')[:32]!r} is unknown; use Allow or Deny")
    return PolicyEntry(
        resource, parse_actions(info.actions or (), where), decision, parse_sources(info.source_ips or (), where)
    )


def parse_resource(text: str | None, where: str = "resource") -> Resource:
    """Return the resource that a text of a policy names.

    Raises:
        AuthValueError: The type is unknown, or the name cannot be one of that type.
    """
    if not text or not text.strip():
        raise AuthValueError(f"{where}: the resource is blank; give one such as Topic:orders, Group:shop* or *")
    if text == "*":
        return ANY_RESOURCE
    word, colon, name = text.partition(":")
    kind = by_word(ResourceType, word)
    if kind is None or kind is ResourceType.ANY or not colon:
        raise AuthValueError(
            f"{where}: resource {text[:64]!r} has no known type; begin it with Cluster:, Namespace:, Topic: or Group:"
        )
    if name == "*":
        return Resource(kind, "", ResourcePattern.ANY)
    if len(name) > MAX_RESOURCE_LENGTH:
        raise AuthValueError(
            f"{where}: the name of {word}:{name[:32]}... has {len(name):,} characters, more than {MAX_RESOURCE_LENGTH}"
        )
    pattern = ResourcePattern.PREFIXED if name.endswith("*") else ResourcePattern.LITERAL
    plain = name.removesuffix("*")
    is_topic_or_group = kind in {ResourceType.TOPIC, ResourceType.GROUP}
    if not plain or not (_TOPIC_NAME if is_topic_or_group else _NAME).fullmatch(plain):
        wrong = "one * may stand at its end" if "*" in plain else f"it cannot be the name of a {kind.word.lower()}"
        raise AuthValueError(f"{where}: resource {text[:300]!r}: {wrong}")
    if kind is ResourceType.TOPIC and plain.startswith(RETRY_GROUP_TOPIC_PREFIX):
        group = name.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        raise AuthValueError(f"{where}: {text}: retry topics are checked as their group; give Group:{group or '*'}")
    return Resource(kind, plain, pattern)


def parse_actions(words: Sequence[str], where: str) -> tuple[Action, ...]:
    """Return actions by their words, each once, in the order given.

    Raises:
        AuthValueError: The list is empty, or one is unknown.
    """
    if not words:
        raise AuthValueError(f"{where}: it has no actions; give some of {_ACTIONS}")
    actions = []
    for word in words:
        action = by_word(Action, word)
        if action is None:
            raise AuthValueError(f"{where}: action {word[:32]!r} is unknown; give a list of some of {_ACTIONS}")
        actions.append(action)
    return tuple(dict.fromkeys(actions))


_ACTIONS: Final = ", ".join(action.word for action in Action)


def parse_sources(texts: Sequence[str], where: str) -> tuple[str, ...]:
    """Return source addresses as given, each checked.

    Raises:
        AuthValueError: One is not an address or a network, or there are too many.
    """
    if len(texts) > MAX_SOURCES:
        raise AuthValueError(
            f"{where}: {len(texts):,} source addresses exceed the limit of {MAX_SOURCES}; give networks"
        )
    for text in texts:
        try:
            network_of(text)
        except ValueError:
            raise AuthValueError(
                f"{where}: source {text[:64]!r} is not an address or a network; give one such as 10.1.2.3, "
                "10.0.0.0/8 or 2001:db8::/32"
            ) from None
    return tuple(dict.fromkeys(texts))


def network_of(text: str) -> Network:
    """Return the network of a source, whose bits beyond the mask do not count.

    Raises:
        ValueError: It is not an address or a network.
    """
    # ip_network also takes masks such as /255.0.0.0, which Apache's broker rejects.
    _, slash, length = text.partition("/")
    if slash and not (length.isascii() and length.isdigit()):
        raise ValueError(text)
    return ip_network(text, strict=False)
