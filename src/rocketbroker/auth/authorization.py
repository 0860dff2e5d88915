"""Decisions by policies (UserAuthorizationHandler and AclAuthorizationHandler).

Order, first match decides:

1. A Super user may do everything; a disabled or unknown user nothing.
2. Entries of the Custom policy before those of the Default policy. The latter count only where no Custom entry matches.
3. Within a policy: an entry for a type before ``*``; a literal before a prefix before ``Type:*``; a longer prefix
   before a shorter one; Deny before Allow.
4. No match: rejected.

An entry matches if it fits the resource, has one of the actions asked for or All, and fits the source address. So a
check for Sub or Get passes with either, and a Deny of one of them rejects both.

Why an index gives the answer of a sort: entries that match one resource are ordered by type and pattern alone, and of
each kind at most one key can fit - the literal of that name, the prefix of one length, ``Type:*``, ``*``. ``_Index``
looks these up from the first to the last, so a decision costs one look-up for each length of a prefix that the user has
(at most 255), however many entries there are. Entries of one key are kept with Deny first.

A topic of the broker's own, where half, delayed and timer messages of all topics wait, is covered by an entry for its
name alone. Any other entry that allows it counts only for users with Get on the cluster: ``Topic:*`` is meant for the
topics of an application. ``check`` follows this if it is given the cluster.

Decisions are cached per user, resource, actions and address. A cache belongs to one ``AccessRules``, which never
changes: a change of any user or policy makes new rules, and with them a new cache, so no decision outlives the policy
that it followed. ``version`` tells a connection that keeps decisions of its own that there are new rules.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from shlex import quote
from types import MappingProxyType
from typing import Final, NamedTuple

from rocketbroker.auth.errors import AuthorizationError
from rocketbroker.auth.policies import (
    MAX_RESOURCE_LENGTH,
    Acl,
    Action,
    Decision,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
    network_of,
)
from rocketbroker.auth.users import User
from rocketbroker.codec.message.topic_validator import (
    CLIENT_SYSTEM_TOPICS,
    REPLY_TOPIC_POSTFIX,
    RMQ_SYS_TRACE_TOPIC,
    is_system_topic,
)

#: Decisions kept, some 500 bytes each; all are dropped when there are more.
CACHE_SIZE: Final = 10_000


class Right(NamedTuple):
    """Access that a request needs: any one of the actions, on a literal resource."""

    resource: Resource
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        """Return the text for a remark: ``Sub or Get on Topic:orders``."""
        return f"{' or '.join(action.word for action in self.actions)} on {self.resource}"


class Verdict(NamedTuple):
    """Outcome for one right.

    Attributes:
        allowed: the policies allow it.
        entry: the one that decided, ``None`` if no entry matches.
        needs_cluster: it may be one of the broker's own topics, and the entry does not name it.
    """

    allowed: bool
    entry: PolicyEntry | None
    needs_cluster: bool = False


class Source(NamedTuple):
    """Address of a peer as a number, IPv4 where an IPv6 socket shows an IPv4 peer."""

    version: int
    number: int


class _Range(NamedTuple):
    version: int
    first: int
    last: int


class _Rule(NamedTuple):
    mask: int
    ranges: tuple[_Range, ...]
    verdict: Verdict

    def matches(self, mask: int, source: Source | None) -> bool:
        if not self.mask & mask:
            return False
        if not self.ranges:
            return True
        if source is None:
            # A peer without an address, such as a local socket: it gains nothing by that.
            return not self.verdict.allowed
        return any(r.version == source.version and r.first <= source.number <= r.last for r in self.ranges)


def _is_own_topic(right: Right) -> bool:
    """Return true for a topic of the broker's own, or for one that is it in some cluster."""
    kind, name = right.resource.type, right.resource.name
    if kind is not ResourceType.TOPIC or name in CLIENT_SYSTEM_TOPICS:
        return False
    if name == RMQ_SYS_TRACE_TOPIC or name.endswith(REPLY_TOPIC_POSTFIX):
        # All clients send there.
        return Action.PUB not in right.actions
    return is_system_topic(name)


# Code of a request, and all texts on which the decision depends; ``None`` for a field that is absent.
GrantedRequest = tuple[int | str | None, ...]

# Names that a policy may have.
_SHOWN: Final = re.compile(r"[!-)+-~]{1,255}")
_EVERY_ACTION: Final = sum(1 << action for action in Action)
_Rules = tuple[_Rule, ...]


def _mask_of(actions: Iterable[Action]) -> int:
    return sum(1 << action for action in set(actions))


@lru_cache(maxsize=4_096)
def _range_of(text: str) -> _Range:
    network = network_of(text)
    return _Range(network.version, int(network.network_address), int(network.broadcast_address))


def _rule(entry: PolicyEntry) -> _Rule:
    ranges = tuple(map(_range_of, entry.sources))
    mask = _EVERY_ACTION if Action.ALL in entry.actions else _mask_of(entry.actions)
    return _Rule(mask, ranges, Verdict(entry.decision is Decision.ALLOW, entry))


@lru_cache(maxsize=4_096)
def source_of(address: str) -> Source | None:
    """Return the number of an IP address, ``None`` if the text is not one; a scope such as ``%eth0`` does not count."""
    try:
        found = ip_address(address.partition("%")[0].strip("[]"))
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)
    return Source(4, int(mapped)) if mapped is not None else Source(found.version, int(found))


class _Index:
    """Entries of one policy of one user, by the key that fits a resource."""

    def __init__(self, entries: Sequence[PolicyEntry]) -> None:
        found: dict[Resource, list[_Rule]] = {}
        # Sorting is stable: Deny comes first, and the order given is kept otherwise.
        for entry in sorted(entries, key=lambda entry: entry.decision is not Decision.DENY):
            found.setdefault(entry.resource, []).append(_rule(entry))
        self._rules: dict[Resource, _Rules] = {resource: tuple(rules) for resource, rules in found.items()}
        lengths: dict[ResourceType, set[int]] = {}
        for resource in self._rules:
            if resource.pattern is ResourcePattern.PREFIXED:
                lengths.setdefault(resource.type, set()).add(len(resource.name))
        self._lengths = {kind: sorted(found, reverse=True) for kind, found in lengths.items()}

    def decide(self, resource: Resource, mask: int, source: Source | None) -> Verdict | None:
        """Return the verdict of the first entry that matches."""
        for key in self._keys(resource):
            for rule in self._rules.get(key, ()):
                if rule.matches(mask, source):
                    return rule.verdict
        return None

    def _keys(self, resource: Resource) -> Iterator[Resource]:
        kind, name = resource.type, resource.name
        yield resource
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                yield Resource(kind, name[:length], ResourcePattern.PREFIXED)
        yield Resource(kind, "", ResourcePattern.ANY)
        yield Resource(ResourceType.ANY, "", ResourcePattern.ANY)


def _indexes_of(acl: Acl) -> tuple[_Index, ...]:
    return tuple(_Index(acl.entries(kind)) for kind in PolicyType)


_NOTHING: Final = Verdict(allowed=False, entry=None)


class AccessRules:
    """Users and policies at one moment, and the decisions that follow from them.

    Args:
        users: by name; the mapping must not change afterwards.
        acls: by name of the user; the mapping must not change afterwards.
        older: rules whose indexes are taken over for users whose policies are the same objects. Ten thousand new
            entries take 100 ms, so rules with many are made on a thread.
        option: option by which mqadmin reaches the table, for remarks; the default is that of ``older``.
    """

    def __init__(
        self,
        users: Mapping[str, User] | None = None,
        acls: Mapping[str, Acl] | None = None,
        older: "AccessRules | None" = None,
        option: str = "",
    ) -> None:
        self.option: str = option or ("-c <cluster>" if older is None else older.option)
        self.users: Mapping[str, User] = MappingProxyType(users or {})
        self.acls: Mapping[str, Acl] = MappingProxyType(acls or {})
        self.version: int = 0 if older is None else older.version + 1
        known = {} if older is None else older._indexes
        self._indexes: dict[str, tuple[_Index, ...]] = {
            name: known[name] if older is not None and older.acls.get(name) is acl else _indexes_of(acl)
            for name, acl in self.acls.items()
        }
        self._cache: dict[tuple[str, Resource, tuple[Action, ...], str], Verdict] = {}
        self._granted: set[GrantedRequest] = set()

    def decide(self, username: str, right: Right, address: str) -> Verdict:
        """Return the verdict of a user's policies, whatever kind of user it is.

        Args:
            username: name of a user.
            right: the access.
            address: IP address of the peer, without port.
        """
        key = (username, right.resource, right.actions, address)
        verdict = self._cache.get(key)
        if verdict is None:
            verdict = self._decide(username, right, address)
            # The name is the client's, and may fill a header.
            if len(right.resource.name) <= MAX_RESOURCE_LENGTH:
                if len(self._cache) >= CACHE_SIZE:
                    self._cache.clear()
                self._cache[key] = verdict
        return verdict

    def has_granted(self, request: GrantedRequest) -> bool:
        """Return true if a request is one of those given to ``grant``."""
        return request in self._granted

    def grant(self, request: GrantedRequest) -> None:
        """Keep that a request has been allowed, which saves finding its rights. A refusal is not kept."""
        if all(len(each) <= MAX_RESOURCE_LENGTH for each in request if isinstance(each, str)):
            if len(self._granted) >= CACHE_SIZE:
                self._granted.clear()
            self._granted.add(request)

    def _decide(self, username: str, right: Right, address: str) -> Verdict:
        mask, source = _mask_of(right.actions), source_of(address)
        for index in self._indexes.get(username, ()):
            verdict = index.decide(right.resource, mask, source)
            if verdict is not None:
                named = verdict.entry is not None and verdict.entry.resource == right.resource
                if verdict.allowed and not named and _is_own_topic(right):
                    return verdict._replace(needs_cluster=True)
                return verdict
        return _NOTHING

    def allows(self, user: User, rights: Iterable[Right], address: str, cluster: str = "") -> bool:
        """Return true if ``check`` passes for a user that is enabled."""
        return user.is_super or self._missing(user.name, rights, address, cluster) is None

    def check(self, username: str, rights: Iterable[Right], address: str, cluster: str = "") -> None:
        """Reject a request unless its user has each of the rights.

        Args:
            username: name of the user.
            rights: the rights.
            address: IP address of the peer, without port.
            cluster: cluster whose own topics need an entry of their own or Get on it; empty for Apache's rule.

        Raises:
            AuthorizationError: It lacks one, or the user is unknown or disabled. The text names user, resource, actions
                and address, and the command that would allow it.
        """
        user = self.users.get(username)
        if user is None:
            raise AuthorizationError(f"User:{username} not found.", username)
        if not user.is_enabled:
            raise AuthorizationError(f"User:{username} is disabled.", username)
        if user.is_super:
            return
        missing = self._missing(username, rights, address, cluster)
        if missing is not None:
            right, verdict = missing
            raise AuthorizationError(refusal(username, right, address, verdict, self.option), username)

    def _missing(
        self, username: str, rights: Iterable[Right], address: str, cluster: str
    ) -> tuple[Right, Verdict] | None:
        """Return the first right that a user lacks, and why; ``None`` if it has all."""
        for right in rights:
            verdict = self.decide(username, right, address)
            if not verdict.allowed:
                return right, verdict
            if verdict.needs_cluster and not self._covers_own(username, right, address, cluster):
                return right, _NOTHING
        return None

    def _covers_own(self, username: str, right: Right, address: str, cluster: str) -> bool:
        name = right.resource.name
        if not cluster or not (is_system_topic(name) or name == cluster + REPLY_TOPIC_POSTFIX):
            return True
        return self.decide(username, Right(Resource.cluster(cluster), (Action.GET,)), address).allowed


def refusal(username: str, right: Right, address: str, verdict: Verdict, option: str) -> str:
    """Return the remark for a rejected request: Apache's sentence, then the actions and what would allow them.

    The name of the resource is the client's: it is quoted for a shell, and a name that cannot exist is not made a part
    of a command. The entry that decided is not shown, since it may tell of names that the user may not know.
    """
    resource = right.resource
    shown = str(resource) if _SHOWN.fullmatch(resource.name) else f"{resource.type.word}:{resource.name[:64]!a}"
    text = f"User:{username} has no permission to access {shown} from {address}, "
    wanted = f"It needs {' or '.join(action.word for action in right.actions)}"
    if verdict.entry is not None:
        shows = f"mqadmin getAcl {option} -s {quote(f'User:{username}')} shows the policies"
        return f"{text}the decision is deny. {wanted}; {shows}"
    if not _SHOWN.fullmatch(resource.name):
        return f"{text}no matched policies. {wanted}"
    return (
        f"{text}no matched policies. {wanted}; to allow it: mqadmin createAcl {option} "
        f"-s {quote(f'User:{username}')} -r {quote(str(resource))} -a {right.actions[0].word} -d Allow"
    )
