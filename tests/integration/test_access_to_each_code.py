"""Each request code of both servers: served with its rights, and refused without one, changing and revealing nothing.

The codes are those of the servers' tables, so that a new one is checked, or lacks a request in ``request_samples``.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.auth.access_store import AccessStore
from rocketbroker.auth.authorization import AccessRules, Right
from rocketbroker.auth.policies import Acl, Action, Decision, PolicyEntry, Resource
from rocketbroker.auth.request_rights import ROUTE_READS, RequestRights
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.testing import RocketMQServer
from tests.support.raw_client import RawAnswer
from tests.support.raw_requests import send_fields, topic_fields
from tests.support.request_samples import sample
from tests.support.signed_client import SignedClient

CLUSTER, TOPIC, GROUP = "DefaultCluster", "Orders", "billing"
JOE = ("joe", "joe-secret")
SECRET = b"a secret"
# Names that an answer could reveal.
NAMES: Final = (TOPIC.encode(), GROUP.encode(), SECRET, b"inner")


_BROKER_TABLES: Final[dict[Code, dict[str, str]]] = {
    code: {}
    for code in (
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_MESSAGE_REQUEST_MODE,
        Code.GET_BROKER_CONFIG,
        Code.AUTH_LIST_USER,
        Code.AUTH_LIST_ACL,
    )
}
_NAMESRV_TABLES: Final[dict[Code, dict[str, str]]] = {
    Code.GET_BROKER_CLUSTER_INFO: {},
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {},
    Code.GET_NAMESRV_CONFIG: {},
    Code.GET_ROUTEINFO_BY_TOPIC: {"topic": TOPIC},
    Code.GET_KVLIST_BY_NAMESPACE: {"namespace": "N"},
}
# Rights on the message that a request finds: the offset of all samples is that of the message in the topic.
ON_FOUND: Final[dict[int, list[Right]]] = {Code.CONSUMER_SEND_MSG_BACK: [Right(Resource.topic(TOPIC), (Action.SUB,))]}


class Request(NamedTuple):
    """A request of one code, and the rights that the server's own table asks for it."""

    code: int
    fields: dict[str, str]
    body: bytes
    rights: list[Right]


class Server:
    """One of the servers, with a connection of joe, whose policies a test sets."""

    def __init__(self, address: str, controller: BrokerController | NamesrvController, codes: Iterable[int]) -> None:
        access = controller.access
        assert access is not None
        self.store: AccessStore = access.store
        self._address = address
        self.joe = self.connect()
        rights = RequestRights(CLUSTER)
        self.requests: list[Request] = []
        for code in codes:
            fields, body = sample(controller.routes[code], TOPIC, GROUP)
            self.requests.append(Request(code, fields, body, rights.of(code, fields, body)))

    def allow(self, entries: Sequence[PolicyEntry]) -> None:
        old = self.store.rules
        self.store.rules = AccessRules(dict(old.users), {"joe": Acl("joe", tuple(entries))}, old)

    def connect(self) -> SignedClient:
        return SignedClient(self._address, JOE)

    def ask(self, request: Request) -> RawAnswer:
        return self.joe.ask(request.code, request.fields, request.body)


class Servers:
    """Both servers, and all that a request could change in them."""

    def __init__(self, mq: RocketMQServer) -> None:
        self.mq = mq
        credentials = mq.credentials()
        root = credentials.access_key, credentials.secret_key
        self.admin, self.namesrv_admin = (SignedClient(address, root) for address in (mq.broker_addr, mq.namesrv_addr))
        self.broker = mq._broker("broker-a").controller
        namesrv = mq._server._namesrv
        assert namesrv is not None
        self.all = {
            "broker": Server(mq.broker_addr, self.broker, sorted(self.broker.routes)),
            "name server": Server(mq.namesrv_addr, namesrv, sorted(namesrv.routes.keys() - ROUTE_READS)),
        }
        properties = f"UNIQ_KEY\x01{'0' * 32}\x02KEYS\x01k\x02"
        offset = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "1"}
        for code, fields, body in (
            (Code.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC), b""),
            (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"%s"}' % GROUP.encode()),
            (Code.SEND_MESSAGE_V2, send_fields(TOPIC, i=properties), SECRET),
            (Code.UPDATE_CONSUMER_OFFSET, offset, b""),
        ):
            assert self.admin.ask(code, fields, body).code == ResponseCode.SUCCESS
        pair = {"namespace": "N", "key": "k", "value": "v"}
        assert self.namesrv_admin.ask(Code.PUT_KV_CONFIG, pair).code == ResponseCode.SUCCESS
        mq.flush()

    def state(self) -> dict[str, Any]:
        """Return tables on disk and in memory, the end of the log, and who is connected."""
        for server in self.all.values():
            server.allow([])
        tables = [path for path in Path(self.mq.store).rglob("*.json") if path.is_file()]
        found: dict[str, Any] = {str(path): path.read_bytes() for path in tables}
        for client, codes in ((self.admin, _BROKER_TABLES), (self.namesrv_admin, _NAMESRV_TABLES)):
            for code, fields in codes.items():
                answer = client.ask(code, fields)
                assert answer.code == ResponseCode.SUCCESS, answer
                found[code.name] = answer.body, answer.fields
        broker = self.broker

        def in_memory() -> dict[str, Any]:
            return {
                "log": broker.store.commit_log.max_offset,
                "producers": repr(broker.producers.groups),
                "consumers": repr(broker.consumers.groups),
                "locks": repr(vars(broker._locks)),
                "users": [repr(server.store.rules.users) for server in self.all.values()],
            }

        return found | self.mq._running().call(in_memory)

    def close(self) -> None:
        for server in self.all.values():
            server.joe.close()
        self.admin.close()
        self.namesrv_admin.close()


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with RocketMQServer(users=dict([JOE]), policies={}) as mq:
        made = Servers(mq)
        yield made
        made.close()


def entries(rights: Sequence[Right]) -> list[PolicyEntry]:
    """Return one entry for each resource, with one action of each right."""
    actions: dict[Resource, list[Action]] = {}
    for right in rights:
        actions.setdefault(right.resource, []).append(right.actions[0])
    return [PolicyEntry(resource, tuple(found), Decision.ALLOW) for resource, found in actions.items()]


def without(rights: Sequence[Right], missing: Right) -> list[PolicyEntry]:
    """Return entries for all rights but one, whose resource has every other action; and for all other resources."""
    others = [Right(resource, tuple(Action)[1:]) for resource in (Resource.topic("Other"), Resource.group("Other"))]
    left = tuple(action for action in Action if action is not Action.ALL and action not in missing.actions)
    kept = [right for right in rights if right.resource != missing.resource]
    resource = PolicyEntry(missing.resource, left, Decision.ALLOW)
    return [*entries(kept), resource, *(PolicyEntry(each.resource, each.actions, Decision.ALLOW) for each in others)]


def revealed(answer: RawAnswer, request: Request) -> list[bytes]:
    """Return what a refusal says that the request did not."""
    asked = repr(request).encode()
    said = answer.body + repr(answer.fields).encode() + answer.remark.encode()
    return [name for name in NAMES if name in said and name not in asked]


@pytest.mark.parametrize("name", ["broker", "name server"])
def test_each_request_needs_each_of_its_rights(servers: Servers, name: str):
    server = servers.all[name]
    before, wrong = servers.state(), {}
    for request in server.requests:
        assert request.rights, f"{Code(request.code).name} would be open to every user"
        for right in request.rights:
            server.allow(without(request.rights, right))
            answer = server.ask(request)
            words = f"User:joe has no permission to access {right.resource} from 127.0.0.1"
            if answer.code != ResponseCode.NO_PERMISSION or not answer.remark.startswith(words):
                wrong[Code(request.code).name, str(right)] = answer
            assert (answer.body, answer.fields, revealed(answer, request)) == (b"", {}, []), answer
            assert len(answer.remark.splitlines()) == 1
    assert wrong == {}
    assert servers.state() == before


@pytest.mark.parametrize("name", ["broker", "name server"])
def test_each_request_is_served_with_its_rights_alone(servers: Servers, name: str):
    server = servers.all[name]
    refused = {}
    for request in server.requests:
        server.allow(entries([*request.rights, *ON_FOUND.get(request.code, ())]))
        # A change of policies closes connections whose user joined a group by rights that are gone.
        with closing(server.connect()) as joe:
            answer = joe.ask(request.code, request.fields, request.body)
        if answer.code == ResponseCode.NO_PERMISSION and "has no permission to access" in answer.remark:
            refused[Code(request.code).name] = answer.remark
    assert refused == {}
