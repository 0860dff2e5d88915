"""Policies as texts: read, refused with their place, merged and written."""

from typing import Any

import pytest

from rocketbroker.auth.errors import AuthValueError
from rocketbroker.auth.policies import (
    ANY_RESOURCE,
    MAX_ENTRIES,
    Acl,
    Action,
    Decision,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
    parse_acl,
    parse_entry,
    parse_policy_type,
    parse_resource,
    parse_subject,
)
from rocketbroker.codec.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo


def allow(resource: str, *actions: Action) -> PolicyEntry:
    return PolicyEntry(parse_resource(resource), actions or (Action.PUB,), Decision.ALLOW)


def entry(resource: str | None = "Topic:T", **fields: Any) -> PolicyEntryInfo:
    return PolicyEntryInfo(**{"resource": resource, "actions": ["Pub"], "decision": "Allow", **fields})


def acl(*entries: PolicyEntryInfo, policy_type: str | None = "Custom") -> AclInfo:
    return AclInfo("User:joe", [PolicyInfo(policy_type, list(entries))])


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("*", ANY_RESOURCE),
        ("Topic:*", Resource(ResourceType.TOPIC, "", ResourcePattern.ANY)),
        ("topic:T", Resource(ResourceType.TOPIC, "T")),
        ("GROUP:pre*", Resource(ResourceType.GROUP, "pre", ResourcePattern.PREFIXED)),
        ("Cluster:DefaultCluster", Resource(ResourceType.CLUSTER, "DefaultCluster")),
        ("Namespace:ns", Resource(ResourceType.NAMESPACE, "ns")),
        ("Topic:%DLQ%G", Resource(ResourceType.TOPIC, "%DLQ%G")),
        ("Topic:inst%T", Resource(ResourceType.TOPIC, "inst%T")),
    ],
)
def test_a_resource_is_read_and_written(text: str, resource: Resource):
    assert parse_resource(text) == resource
    assert str(resource).lower() == text.lower()
    assert parse_resource(str(resource)) == resource


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "the resource is blank"),
        (" ", "the resource is blank"),
        ("Topik:T", "'Topik:T' has no known type; begin it with Cluster:, Namespace:, Topic: or Group:"),
        ("T", "has no known type"),
        ("Any:*", "has no known type"),
        ("Topic", "has no known type"),
        ("Topic:", "it cannot be the name of a topic"),
        ("Topic:a*b*", r"one \* may stand at its end"),
        ("Topic:**", r"one \* may stand at its end"),
        ("Topic:a b", "it cannot be the name of a topic"),
        ("Topic:\u0422opicA", "it cannot be the name of a topic"),  # a Cyrillic letter
        ("Group:a\n", "it cannot be the name of a group"),
        ("Cluster:a\n", "it cannot be the name of a cluster"),
        ("Topic:" + "a" * 256, "256 characters, more than 255"),
        ("Topic:%RETRY%G", "retry topics are checked as their group; give Group:G"),
        ("Topic:%RETRY%*", r"give Group:\*"),
    ],
)
def test_a_text_that_is_no_resource_is_refused(text: str | None, reason: str):
    with pytest.raises(AuthValueError, match=reason):
        parse_resource(text)


def test_an_acl_is_read_and_written():
    info = AclInfo(
        "User:joe",
        [
            PolicyInfo("Custom", [PolicyEntryInfo("Topic:T", ["Pub", "Sub"], ["10.0.0.0/8", "::1"], "Allow")]),
            PolicyInfo("Default", [PolicyEntryInfo("*", ["All"], None, "Deny")]),
        ],
    )
    held = parse_acl("User:joe", info)

    assert held.custom == (
        PolicyEntry(Resource.topic("T"), (Action.PUB, Action.SUB), Decision.ALLOW, ("10.0.0.0/8", "::1")),
    )
    assert held.default == (PolicyEntry(ANY_RESOURCE, (Action.ALL,), Decision.DENY),)
    assert held.info() == info
    assert len(held) == 2


def test_a_policy_without_a_type_is_a_custom_one_and_words_are_read_in_any_case():
    held = parse_acl("user:joe", acl(entry(actions=["PUB", "pub", "sub"], decision="deny"), policy_type=None))
    assert held.custom == (PolicyEntry(Resource.topic("T"), (Action.PUB, Action.SUB), Decision.DENY),)


def test_the_subject_of_the_header_is_enough():
    info = acl(entry())
    info.subject = None
    assert parse_acl("User:joe", info).subject == "User:joe"


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (AclInfo("User:joe"), "policies of User:joe: there are none"),
        (AclInfo("User:joe", [PolicyInfo("Custom", [])]), "Custom policy of User:joe: it has no entries"),
        (AclInfo("User:bob", acl(entry()).policies), "the header has 'User:joe' and the body 'User:bob'"),
        (acl(entry(), policy_type="Main"), "policy 1: type 'Main' is unknown; use Custom or Default"),
        (acl(entry(), entry("Topik:T")), "Custom policy of User:joe, entry 2: resource 'Topik:T' has no known type"),
        (acl(entry(actions=[])), r"entry 1 \(Topic:T\): it has no actions"),
        (acl(entry(actions=["Pub|Sub"])), r"entry 1 \(Topic:T\): action 'Pub\|Sub' is unknown; give a list"),
        (acl(entry(actions=["Any"])), "action 'Any' is unknown"),
        (acl(entry(decision=None)), "decision '' is unknown; use Allow or Deny"),
        (acl(entry(decision="Maybe")), "decision 'Maybe' is unknown"),
        (acl(entry(source_ips=["10.0.0.256"])), "source '10.0.0.256' is not an address or a network"),
        (acl(entry(source_ips=["localhost/8"])), "source 'localhost/8' is not"),
        (acl(entry(source_ips=["10.0.0.0/255.0.0.0"])), "is not an address or a network"),
        (acl(entry(source_ips=["10.0.0.0/33"])), "is not an address or a network"),
        (acl(entry(source_ips=[""])), "source '' is not"),
        (acl(entry(source_ips=[f"10.0.{n // 256}.{n % 256}" for n in range(257)])), "257 source addresses exceed"),
        (acl(entry(), entry("Group:G"), entry(decision="Deny")), "entries 1 and 3 are both for Topic:T; give one"),
        (acl(*(entry(f"Topic:T{n}") for n in range(MAX_ENTRIES + 1))), "10,001 entries exceed the limit of 10,000"),
    ],
)
def test_a_wrong_acl_is_refused_with_its_place(info: AclInfo, reason: str):
    with pytest.raises(AuthValueError, match=reason):
        parse_acl("User:joe", info)


def test_two_policies_of_one_type_may_not_contradict_each_other():
    info = AclInfo("User:joe", [PolicyInfo("Custom", [entry()]), PolicyInfo("custom", [entry(decision="Deny")])])
    with pytest.raises(AuthValueError, match="entries 1 and 2 are both for Topic:T"):
        parse_acl(None, info)


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (None, "it is blank"),
        ("joe", "'joe': it is not a user; give User:<name>"),
        ("Role:joe", "it is not a user"),
        ("u\u017fer:joe", "it is not a user"),
        ("User:", "username: it is blank"),
        ("User:j o", "is not allowed"),
    ],
)
def test_a_subject_is_a_user(subject: str | None, reason: str):
    with pytest.raises(AuthValueError, match=reason):
        parse_subject(subject)


def test_a_newer_entry_replaces_the_one_of_its_resource():
    older = Acl("joe", (allow("Topic:A"), allow("Topic:B")), (allow("*"),))
    newer = Acl("joe", (allow("Topic:B", Action.SUB), allow("Topic:C")))

    merged = older.merged(newer)

    assert merged.custom == (allow("Topic:A"), allow("Topic:B", Action.SUB), allow("Topic:C"))
    assert merged.default == older.default


def test_a_merge_is_bounded_as_well():
    older = Acl("joe", tuple(allow(f"Topic:A{n}") for n in range(MAX_ENTRIES)))
    assert older.merged(Acl("joe", (allow("Topic:A0", Action.SUB),))).custom[0].actions == (Action.SUB,)
    with pytest.raises(AuthValueError, match="10,001 entries exceed"):
        older.merged(Acl("joe", (allow("Topic:B"),)))


def test_an_entry_is_removed_from_one_policy():
    held = Acl("joe", (allow("Topic:A"), allow("*")), (allow("*"),))
    assert held.without(PolicyType.CUSTOM, ANY_RESOURCE) == Acl("joe", (allow("Topic:A"),), (allow("*"),))
    assert held.without(PolicyType.DEFAULT, ANY_RESOURCE) == Acl("joe", (allow("Topic:A"), allow("*")))


def test_a_body_can_be_limited_to_resources():
    held = Acl("joe", (allow("Topic:shop"), allow("Group:shop"), allow("*")), (allow("*"),))
    info = held.info("shop")
    assert [[found.resource for found in policy.entries or ()] for policy in info.policies or ()] == [
        ["Topic:shop", "Group:shop"]
    ]


def test_the_type_of_a_policy_is_custom_unless_given():
    assert parse_policy_type(None) is parse_policy_type("") is PolicyType.CUSTOM
    assert parse_policy_type("default") is PolicyType.DEFAULT
    with pytest.raises(AuthValueError, match="policyType: type 'x' is unknown"):
        parse_policy_type("x")


def test_a_host_part_of_a_network_is_kept_as_written():
    held = parse_entry(entry(source_ips=["10.1.2.3/8", "10.1.2.3/8"]), "entry 1")
    assert held.sources == ("10.1.2.3/8",)
