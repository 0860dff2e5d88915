"""Decisions, compared with a plain reading of the rules."""

from functools import cmp_to_key
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.auth.authorization import CACHE_SIZE, AccessRules, Right, source_of
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
    parse_resource,
)
from rocketbroker.auth.users import User, UserStatus, UserType
from tests.support.access_cases import Access, accesses, acls

ADDRESS = "10.1.2.3"


def plain_match(entry: PolicyEntry, access: Access) -> bool:
    held, asked = entry.resource, access.right.resource
    if held.type is not ResourceType.ANY:
        if held.type is not asked.type:
            return False
        if held.pattern is ResourcePattern.LITERAL and held.name != asked.name:
            return False
        if held.pattern is ResourcePattern.PREFIXED and not asked.name.startswith(held.name):
            return False
    if Action.ALL not in entry.actions and not set(entry.actions) & set(access.right.actions):
        return False
    networks = [ip_network(source, strict=False) for source in entry.sources]
    return not networks or any(ip_address(access.address) in network for network in networks)


def plain_order(one: PolicyEntry, other: PolicyEntry) -> int:
    """Return a negative number if ``one`` goes first."""
    mine, its = one.resource, other.resource
    if mine.type is not its.type:
        return 1 if mine.type is ResourceType.ANY else -1
    if mine.pattern is not its.pattern:
        ranks = [ResourcePattern.LITERAL, ResourcePattern.PREFIXED, ResourcePattern.ANY]
        return ranks.index(mine.pattern) - ranks.index(its.pattern)
    if len(mine.name) != len(its.name):
        return len(its.name) - len(mine.name)
    return int(other.decision is Decision.DENY) - int(one.decision is Decision.DENY)


def plain_decision(acl: Acl, access: Access) -> bool:
    for kind in PolicyType:
        found = [entry for entry in acl.entries(kind) if plain_match(entry, access)]
        if found:
            return min(found, key=cmp_to_key(plain_order)).decision is Decision.ALLOW
    return False


def entry(resource: str, actions: list[Action], decision: Decision = Decision.ALLOW, *sources: str) -> PolicyEntry:
    return PolicyEntry(parse_resource(resource), tuple(actions), decision, sources)


def rules(*custom: PolicyEntry, default: tuple[PolicyEntry, ...] = ()) -> AccessRules:
    return AccessRules({"joe": User("joe", "secret")}, {"joe": Acl("joe", custom, default)})


def is_allowed(held: AccessRules, resource: Resource, *actions: Action, address: str = ADDRESS) -> bool:
    return held.decide("joe", Right(resource, actions), address).allowed


@given(acl=acls(), asked=st.lists(accesses(), min_size=1, max_size=20))
def test_a_decision_is_that_of_a_sorted_list(acl: Acl, asked: list[Access]):
    held = AccessRules(acls={"joe": acl})

    for _ in range(2):  # the second time from the cache
        decided = [held.decide("joe", access.right, access.address).allowed for access in asked]
        assert decided == [plain_decision(acl, access) for access in asked]


def test_a_custom_entry_goes_before_a_default_one_even_if_it_is_less_exact():
    held = rules(entry("*", [Action.ALL], Decision.DENY), default=(entry("Topic:T", [Action.PUB]),))
    assert not is_allowed(held, Resource.topic("T"), Action.PUB)


def test_a_default_entry_counts_where_no_custom_one_matches():
    held = rules(entry("Topic:T", [Action.SUB], Decision.DENY), default=(entry("Topic:*", [Action.PUB]),))
    assert is_allowed(held, Resource.topic("T"), Action.PUB)
    assert not is_allowed(held, Resource.topic("T"), Action.SUB)


def test_one_of_the_actions_asked_is_enough():
    held = rules(entry("Group:G", [Action.SUB]))
    assert is_allowed(held, Resource.group("G"), Action.SUB, Action.UPDATE)
    assert not is_allowed(held, Resource.group("G"), Action.UPDATE)


def test_a_retry_topic_stands_for_its_group():
    held = rules(entry("Group:G", [Action.SUB]))
    assert is_allowed(held, Resource.group("%RETRY%G"), Action.SUB)


def test_an_address_is_compared_as_a_number():
    held = rules(entry("*", [Action.ALL], Decision.ALLOW, "10.1.0.0/16", "2001:db8::/32", "::1"))
    for address in ("10.1.255.255", "::ffff:10.1.2.3", "2001:db8::5", "[2001:db8::5]", "0:0:0:0:0:0:0:1"):
        assert is_allowed(held, Resource.topic("T"), Action.PUB, address=address), address
    for address in ("10.2.0.0", "::a01:203", "2001:db9::", "", "host"):
        assert not is_allowed(held, Resource.topic("T"), Action.PUB, address=address), address


def test_a_peer_without_an_address_gains_nothing_by_that():
    held = rules(entry("Topic:T", [Action.PUB], Decision.DENY, "10.0.0.0/8"), default=(entry("Topic:T", [Action.PUB]),))
    assert is_allowed(held, Resource.topic("T"), Action.PUB, address="192.168.0.1")
    assert not is_allowed(held, Resource.topic("T"), Action.PUB, address="")


def test_the_scope_of_an_address_does_not_count():
    assert source_of("fe80::1%eth0") == source_of("fe80::1")


def test_ten_thousand_entries_are_looked_up_not_searched():
    names = [f"orders-{number:05}" for number in range(10_000)]
    held = rules(*(entry(f"Topic:{name}{'*' if name[-1] == '0' else ''}", [Action.PUB]) for name in names))
    keys = 0
    (custom, _) = held._indexes["joe"]

    class Counted(dict):
        def get(self, key, default=None):
            nonlocal keys
            keys += 1
            return super().get(key, default)

    assert is_allowed(held, Resource.topic(names[0]), Action.PUB)
    custom._rules = Counted(custom._rules)
    assert is_allowed(held, Resource.topic(names[5001]), Action.PUB)
    assert not is_allowed(held, Resource.topic("stranger"), Action.PUB)
    assert 0 < keys <= 8


def test_the_cache_is_bounded_in_entries_and_in_the_length_of_names():
    held = rules(entry("Topic:*", [Action.PUB]))
    for number in range(CACHE_SIZE + 5):
        assert is_allowed(held, Resource.topic(f"T{number}"), Action.PUB)
    assert 0 < len(held._cache) <= CACHE_SIZE
    held._cache.clear()
    assert is_allowed(held, Resource.topic("T" * (MAX_RESOURCE_LENGTH + 1)), Action.PUB)
    assert not held._cache


def test_new_rules_do_not_know_the_decisions_of_the_old_ones():
    old = rules(entry("Topic:T", [Action.PUB]))
    assert is_allowed(old, Resource.topic("T"), Action.PUB)
    new = rules(entry("Topic:T", [Action.PUB], Decision.DENY))
    assert not is_allowed(new, Resource.topic("T"), Action.PUB)


def test_only_policies_that_changed_are_read_once_more():
    joe, bob = Acl("joe", (entry("Topic:T", [Action.PUB]),)), Acl("bob", (entry("Topic:T", [Action.PUB]),))
    old = AccessRules(acls={"joe": joe, "bob": bob})
    new = AccessRules(acls={"joe": Acl("joe"), "bob": bob}, older=old)

    assert new._indexes["bob"] is old._indexes["bob"]
    assert not is_allowed(new, Resource.topic("T"), Action.PUB)
    assert (old.version, new.version, AccessRules(older=new).version) == (0, 1, 2)
    assert not is_allowed(AccessRules(older=old), Resource.topic("T"), Action.PUB)


HALF, TRACE, REPLIES = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC", "C_REPLY_TOPIC"


@pytest.mark.parametrize("covering", ["*", "Topic:*", "Topic:RMQ_*", "Topic:rmq_sys_*"])
@pytest.mark.parametrize("topic", [HALF, "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_MAX_TIME_TOPIC"])
def test_a_topic_of_the_broker_is_covered_by_its_name_or_together_with_the_cluster(covering: str, topic: str):
    right = Right(Resource.topic(topic), (Action.SUB, Action.PUB))
    covers = parse_resource(covering).name in topic
    sub, get = [Action.SUB], [Action.GET]

    def is_allowed(*entries: PolicyEntry, cluster: str = "C") -> bool:
        held = AccessRules({"joe": User("joe", "secret")}, {"joe": Acl("joe", entries)})
        try:
            held.check("joe", [right], ADDRESS, cluster)
        except AuthorizationError as error:
            return f"-r Topic:{topic} " not in str(error)
        return True

    wide, named = entry(covering, sub), entry(f"Topic:{topic}", sub)
    assert not is_allowed(wide)
    assert is_allowed(named)
    assert is_allowed(wide, named)
    assert is_allowed(wide, entry("Cluster:C", get)) == covers
    assert not is_allowed(wide, entry("Cluster:D", get))
    assert not is_allowed(entry("Cluster:C", get))
    # Apache's rule, and the clusters of other servers.
    assert is_allowed(wide, cluster="") == covers


@pytest.mark.parametrize(
    ("topic", "action", "allowed"),
    [
        (TRACE, Action.PUB, True),
        (TRACE, Action.SUB, False),
        (REPLIES, Action.PUB, True),
        (REPLIES, Action.SUB, False),
        ("D_REPLY_TOPIC", Action.SUB, True),
        ("TBW102", Action.GET, True),
        ("BenchmarkTest", Action.SUB, True),
        ("SELF_TEST_TOPIC", Action.PUB, True),
        ("RMQ_SYS", Action.SUB, True),
    ],
)
def test_topics_that_clients_need_are_covered_by_any_policy(topic: str, action: Action, allowed: bool):
    acl = Acl("joe", (PolicyEntry(parse_resource("Topic:*"), (Action.ALL,), Decision.ALLOW),))
    held = AccessRules({"joe": User("joe", "secret")}, {"joe": acl})
    right = Right(Resource.topic(topic), (action,))
    if allowed:
        held.check("joe", [right], ADDRESS, "C")
    else:
        with pytest.raises(AuthorizationError, match=topic):
            held.check("joe", [right], ADDRESS, "C")


def test_a_super_user_needs_no_policy():
    held = AccessRules({"root": User("root", "secret", UserType.SUPER)})
    held.check("root", [Right(Resource.cluster("C"), (Action.UPDATE,))], ADDRESS)


@pytest.mark.parametrize(
    ("user", "reason"),
    [(None, "User:joe not found."), (User("joe", "s", UserType.SUPER, UserStatus.DISABLE), "User:joe is disabled.")],
)
def test_an_unknown_or_disabled_user_may_do_nothing(user: User | None, reason: str):
    held = AccessRules({user.name: user} if user else {}, {"joe": Acl("joe", (entry("*", [Action.ALL]),))})
    with pytest.raises(AuthorizationError, match=reason):
        held.check("joe", [], ADDRESS)


def test_each_right_of_a_request_is_checked():
    held = rules(entry("Topic:T", [Action.SUB]))
    rights = [Right(Resource.topic("T"), (Action.SUB,)), Right(Resource.group("G"), (Action.SUB, Action.GET))]
    held.check("joe", rights[:1], ADDRESS)
    with pytest.raises(AuthorizationError) as refused:
        held.check("joe", rights, ADDRESS)
    assert str(refused.value) == (
        "User:joe has no permission to access Group:G from 10.1.2.3, no matched policies. It needs Sub or Get; "
        "to allow it: mqadmin createAcl -c <cluster> -s User:joe -r Group:G -a Sub -d Allow"
    )


def test_a_remark_leads_to_the_table_of_its_server_after_changes_too():
    first = AccessRules({"joe": User("joe", "secret")}, option="-b <name server>")
    with pytest.raises(AuthorizationError, match="mqadmin createAcl -b <name server> -s User:joe -r Topic:T"):
        AccessRules(first.users, {}, first).check("joe", [Right(Resource.topic("T"), (Action.PUB,))], ADDRESS)


def test_a_deny_is_named_without_the_entry_that_decided():
    held = rules(entry("Topic:secret*", [Action.ALL], Decision.DENY))
    with pytest.raises(AuthorizationError) as refused:
        held.check("joe", [Right(Resource.topic("secret-plan"), (Action.PUB,))], ADDRESS)
    assert "the decision is deny. It needs Pub; mqadmin getAcl -c <cluster> -s User:joe shows" in str(refused.value)
    assert "secret*" not in str(refused.value)


@pytest.mark.parametrize("name", ["a\nb", "", "\u0422", "x" * 300, "a b"])
def test_a_name_that_cannot_exist_is_shown_in_no_command(name: str):
    with pytest.raises(AuthorizationError) as refused:
        rules().check("joe", [Right(Resource.topic(name), (Action.PUB,))], ADDRESS)
    assert "createAcl" not in str(refused.value)
    assert str(refused.value).isascii()
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


def test_a_name_is_quoted_for_the_shell():
    with pytest.raises(AuthorizationError, match=r"-r 'Topic:a\|reboot' -a Pub"):
        rules().check("joe", [Right(Resource.topic("a|reboot"), (Action.PUB,))], ADDRESS)
