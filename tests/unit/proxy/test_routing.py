"""Routes, assignments, and the choice of queues."""

import pytest

pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")

from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.proxy.call_context import status_of
from rocketbroker.proxy.messaging_pb2 import (
    Address,
    AddressScheme,
    Code,
    Endpoints,
    MessageType,
    Permission,
    QueryAssignmentRequest,
    QueryRouteRequest,
    Resource,
)
from rocketbroker.proxy.messaging_service import MessagingService
from rocketbroker.proxy.routing import Routing, consistent_hash
from tests.support.proxy_brokers import ENDPOINTS, FakeBrokers
from tests.support.proxy_calls import CONTEXT, refusal


@pytest.fixture
def brokers() -> FakeBrokers:
    brokers = FakeBrokers()
    brokers.add_topic("Orders", read_queue_nums=2, write_queue_nums=2)
    brokers.add_group("billing", retry_max_times=3)
    return brokers


@pytest.fixture
def service(brokers: FakeBrokers) -> MessagingService:
    return MessagingService(brokers, ENDPOINTS)


async def test_a_route_has_each_queue_at_this_front(service: MessagingService):
    reply = await service.query_route(QueryRouteRequest(topic=Resource(name="Orders")), CONTEXT)

    assert reply.status.code == Code.OK
    assert [queue.id for queue in reply.message_queues] == [0, 1]
    for queue in reply.message_queues:
        assert (queue.topic.name, queue.broker.name, queue.broker.id) == ("Orders", "broker-a", 0)
        assert queue.broker.endpoints == ENDPOINTS
        assert queue.permission == Permission.READ_WRITE
        assert list(queue.accept_message_types) == [MessageType.NORMAL]


LOAD_BALANCER = Endpoints(
    scheme=AddressScheme.DOMAIN_NAME, addresses=[Address(host="mq.example", port=443), Address(host="b", port=444)]
)


async def addresses(
    brokers: FakeBrokers, config: ProxyConfig, asked: Endpoints, own: Endpoints = ENDPOINTS
) -> list[Endpoints]:
    """Return the addresses in a route and in an assignment."""
    service, orders = MessagingService(brokers, own, config=config), Resource(name="Orders")
    route = await service.query_route(QueryRouteRequest(topic=orders, endpoints=asked), CONTEXT)
    query = QueryAssignmentRequest(topic=orders, group=Resource(name="billing"), endpoints=asked)
    assignment = await service.query_assignment(query, CONTEXT)
    return [route.message_queues[0].broker.endpoints, assignment.assignments[0].message_queue.broker.endpoints]


@pytest.mark.parametrize(("uses_port", "ports"), [(False, [8081, 8081]), (True, [443, 444])])
async def test_clients_of_a_cluster_are_led_to_the_address_that_they_asked_at(
    brokers: FakeBrokers, uses_port: bool, ports: list[int]
):
    brokers.is_cluster = True
    config = ProxyConfig(use_endpoint_port_from_request=uses_port)
    for found in await addresses(brokers, config, LOAD_BALANCER):
        assert found.scheme == AddressScheme.DOMAIN_NAME
        assert [(each.host, each.port) for each in found.addresses] == [("mq.example", ports[0]), ("b", ports[1])]

    assert await addresses(brokers, config, Endpoints()) == [ENDPOINTS] * 2


@pytest.mark.parametrize(("is_cluster", "serve_addr"), [(False, ""), (True, "127.0.0.1")])
async def test_other_clients_are_led_to_the_address_of_the_settings(
    brokers: FakeBrokers, is_cluster: bool, serve_addr: str
):
    brokers.is_cluster = is_cluster
    config = ProxyConfig(local_serve_addr=serve_addr, use_endpoint_port_from_request=True)

    assert await addresses(brokers, config, LOAD_BALANCER) == [ENDPOINTS] * 2


async def test_a_front_that_does_not_know_its_port_yet_has_no_address(brokers: FakeBrokers):
    brokers.is_cluster = True

    assert await addresses(brokers, ProxyConfig(), LOAD_BALANCER, Endpoints()) == [Endpoints()] * 2


async def test_large_endpoints_are_not_repeated_for_each_queue(brokers: FakeBrokers):
    brokers.is_cluster = True
    many = Endpoints(addresses=[Address(host="x" * 512, port=1)])
    error = await refusal(addresses(brokers, ProxyConfig(), many))

    assert error.code == Code.ILLEGAL_ACCESS_POINT


R, W, RW, NONE = Permission.READ, Permission.WRITE, Permission.READ_WRITE, Permission.NONE


@pytest.mark.parametrize(
    ("reads", "writes", "perm", "permissions"),
    [(3, 2, 6, [R, RW, RW]), (1, 2, 6, [W, RW]), (2, 3, 4, [R, R]), (2, 3, 2, [W, W, W]), (2, 3, 0, [NONE] * 3)],
)
async def test_queues_have_permissions(
    service: MessagingService, brokers: FakeBrokers, reads: int, writes: int, perm: int, permissions: list[Permission]
):
    brokers.add_topic("Orders", read_queue_nums=reads, write_queue_nums=writes, perm=perm)
    reply = await service.query_route(QueryRouteRequest(topic=Resource(name="Orders")), CONTEXT)

    assert [queue.permission for queue in reply.message_queues] == permissions
    assert [queue.id for queue in reply.message_queues] == list(range(len(permissions)))


@pytest.mark.parametrize(
    ("attribute", "types"),
    [
        ("FIFO", [MessageType.FIFO]),
        ("PRIORITY", [MessageType.PRIORITY]),
        ("MIXED", [MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION]),
        ("UNSPECIFIED", [MessageType.MESSAGE_TYPE_UNSPECIFIED]),
    ],
)
async def test_queues_accept_the_types_of_the_topic(
    service: MessagingService, brokers: FakeBrokers, attribute: str, types: list[MessageType]
):
    brokers.add_topic("Orders", attributes={"message.type": attribute})
    reply = await service.query_route(QueryRouteRequest(topic=Resource(name="Orders")), CONTEXT)

    assert list(reply.message_queues[0].accept_message_types) == types


@pytest.mark.parametrize("topic", ["", "no blank", "TBW102", "rmq_sys_x", "a" * 128])
async def test_illegal_topics_are_refused(service: MessagingService, topic: str):
    error = await refusal(service.query_route(QueryRouteRequest(topic=Resource(name=topic)), CONTEXT))

    assert error.code == Code.ILLEGAL_TOPIC


async def test_an_unknown_topic_is_not_found(service: MessagingService):
    with pytest.raises(BrokerResponseError) as raised:
        await service.query_route(QueryRouteRequest(topic=Resource(name="Unknown")), CONTEXT)

    assert status_of(raised.value).code == Code.TOPIC_NOT_FOUND


# -- assignments


@pytest.mark.parametrize(("is_fifo", "ids"), [(False, [-1]), (True, [0, 1])])
async def test_clients_of_a_group_share_all_queues_and_take_each_in_an_ordered_group(
    service: MessagingService, brokers: FakeBrokers, is_fifo: bool, ids: list[int]
):
    brokers.add_group("billing", consume_message_orderly=is_fifo)
    query = QueryAssignmentRequest(topic=Resource(name="Orders"), group=Resource(name="billing"))
    reply = await service.query_assignment(query, CONTEXT)

    assert reply.status.code == Code.OK
    queues = [each.message_queue for each in reply.assignments]
    assert [queue.id for queue in queues] == ids
    for queue in queues:
        assert (queue.topic.name, queue.broker.name, queue.permission) == ("Orders", "broker-a", Permission.READ_WRITE)
        assert queue.broker.endpoints == ENDPOINTS


async def test_a_topic_that_nobody_may_read_has_no_assignment(service: MessagingService, brokers: FakeBrokers):
    brokers.add_topic("Orders", perm=2)
    query = QueryAssignmentRequest(topic=Resource(name="Orders"), group=Resource(name="billing"))
    error = await refusal(service.query_assignment(query, CONTEXT))

    assert error.code == Code.FORBIDDEN
    assert "no readable queue" in error.message
    assert "mqadmin updateTopicPerm -t Orders -p 6" in error.message


@pytest.mark.parametrize(
    ("topic", "group", "code"),
    [("no blank", "billing", Code.ILLEGAL_TOPIC), ("Orders", "no blank", Code.ILLEGAL_CONSUMER_GROUP)],
)
async def test_an_assignment_needs_legal_names(service: MessagingService, topic: str, group: str, code: Code):
    query = QueryAssignmentRequest(topic=Resource(name=topic), group=Resource(name=group))

    assert (await refusal(service.query_assignment(query, CONTEXT))).code == code


# -- choice


# From the tests of Guava.
@pytest.mark.parametrize(
    ("key", "buckets", "bucket"),
    [
        (10863919174838991, 11, 6),
        (2016238256797177309, 11, 3),
        (1673758223894951030, 11, 5),
        (2, 100001, 80343),
        (2201, 100001, 22152),
        (2202, 100001, 15018),
    ],
)
def test_the_hash_is_guavas(key: int, buckets: int, bucket: int):
    assert consistent_hash(key, buckets) == bucket


def test_a_bucket_more_moves_keys_to_it_alone():
    for key in range(-2000, 2000, 7):
        before, after = consistent_hash(key, 7), consistent_hash(key, 8)
        assert 0 <= before < 7
        assert after in {before, 7}


async def test_messages_of_a_group_go_to_one_queue_and_others_to_all_in_turn(brokers: FakeBrokers):
    brokers.broker_names = ["broker-b", "broker-a"]
    routing = Routing(brokers, ENDPOINTS, ProxyConfig())
    turns = [await routing.writable_queue("Orders", "") for _ in range(8)]
    grouped = [await routing.writable_queue("Orders", f"group {number % 50}") for number in range(100)]

    # Each broker in turn: the next attempt after a failure finds another one.
    assert [queue.broker_name for queue in turns[:4]] == ["broker-b", "broker-a"] * 2
    assert len(set(turns)) == 4
    assert grouped[:50] == grouped[50:]
    assert len(set(grouped)) == 4


async def test_the_order_of_brokers_in_a_route_moves_no_group(brokers: FakeBrokers):
    found = []
    for names in (["broker-b", "broker-a"], ["broker-a", "broker-b"]):
        brokers.broker_names = names
        routing = Routing(brokers, ENDPOINTS, ProxyConfig())
        found.append([await routing.writable_queue("Orders", f"group {number}") for number in range(20)])

    assert found[0] == found[1]


async def test_a_topic_that_nobody_may_write_has_no_queue(brokers: FakeBrokers):
    brokers.add_topic("Orders", perm=4)
    error = await refusal(Routing(brokers, ENDPOINTS, ProxyConfig()).writable_queue("Orders", ""))

    assert error.code == Code.FORBIDDEN
    assert "no writable queue" in error.message


async def test_pops_go_to_the_wanted_broker_or_to_each_in_turn(brokers: FakeBrokers):
    brokers.broker_names = ["broker-a", "broker-b"]
    routing = Routing(brokers, ENDPOINTS, ProxyConfig())

    assert [await routing.readable_broker("Orders", "broker-b") for _ in range(2)] == ["broker-b"] * 2
    assert {await routing.readable_broker("Orders", name) for name in ("", "unknown")} == {"broker-a", "broker-b"}
