"""Random policies and accesses, few names among them, so that entries often match and overlap."""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from rocketbroker.auth.authorization import Right
from rocketbroker.auth.policies import (
    ANY_RESOURCE,
    Acl,
    Action,
    Decision,
    PolicyEntry,
    Resource,
    ResourcePattern,
    ResourceType,
)

TYPES = [kind for kind in ResourceType if kind is not ResourceType.ANY]
NAMES = ["a", "ab", "abc", "abd", "b", "ba", "%DLQ%a"]
ADDRESSES = ["10.1.2.3", "10.1.9.9", "192.168.0.1", "127.0.0.1"]
SOURCES = ["10.1.2.3", "10.1.0.0/16", "10.1.2.9/24", "0.0.0.0/0", "192.168.0.0/31", "2001:db8::/32"]


class Access(NamedTuple):
    right: Right
    address: str


def resources(names_of: Sequence[str] = NAMES) -> st.SearchStrategy[Resource]:
    types, names = st.sampled_from(TYPES), st.sampled_from(names_of)
    return st.one_of(
        st.just(ANY_RESOURCE),
        st.builds(lambda kind: Resource(kind, "", ResourcePattern.ANY), types),
        st.builds(Resource, types, names, st.sampled_from([ResourcePattern.LITERAL, ResourcePattern.PREFIXED])),
    )


def entries(names: Sequence[str] = NAMES, sources: Sequence[str] = SOURCES) -> st.SearchStrategy[PolicyEntry]:
    return st.builds(
        PolicyEntry,
        resources(names),
        st.lists(st.sampled_from(list(Action)), min_size=1, max_size=3, unique=True).map(tuple),
        st.sampled_from(list(Decision)),
        st.lists(st.sampled_from(sources), max_size=2, unique=True).map(tuple),
    )


def policies() -> st.SearchStrategy[tuple[PolicyEntry, ...]]:
    """Entries of one policy; two may have the same resource, as in a store of Apache's broker."""
    return st.lists(entries(), max_size=8).map(tuple)


def acls(username: str = "joe") -> st.SearchStrategy[Acl]:
    return st.builds(Acl, st.just(username), policies(), policies())


def accesses() -> st.SearchStrategy[Access]:
    asked = st.lists(
        st.sampled_from([action for action in Action if action is not Action.ALL]), min_size=1, max_size=3, unique=True
    )
    literals = st.tuples(st.sampled_from(TYPES), st.sampled_from(NAMES)).map(lambda one: Resource(*one))
    rights = st.builds(Right, literals, asked.map(tuple))
    return st.builds(Access, rights, st.sampled_from(ADDRESSES))
