"""Servers with access control: for each family, who is served and who is not, by frames of real clients."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rocketbroker.app.launch.dev_server import DevBroker, broker_settings, small_files
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.codec.remoting.request_signature import RequestSigner
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.load import load_namesrv_settings
from rocketbroker.testing import RocketMQServer
from tests.support.raw_client import RawAnswer
from tests.support.raw_requests import consumer_data, pull_fields, send_fields
from tests.support.signed_client import SignedClient
from tests.support.waiting import until

ROOT, INNER = ("root", "root-secret"), ("inner", "inner-secret")
PROPERTIES = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER[0], "secretKey": INNER[1]}),
}
JOE = ("joe", "joe-secret")
TOPIC = "Orders"


class Case(NamedTuple):
    """A request, and the right that it needs."""

    code: Code
    fields: dict[str, Any]
    resource: str
    action: str
    body: bytes = b""


GROUP = "CG_Bad"
QUEUE = {"topic": TOPIC, "queueId": "0"}
CASES = [
    Case(Code.SEND_MESSAGE_V2, send_fields(TOPIC), f"Topic:{TOPIC}", "Pub", b"body"),
    Case(Code.PULL_MESSAGE, pull_fields(TOPIC), f"Topic:{TOPIC}", "Sub"),
    Case(Code.QUERY_CONSUMER_OFFSET, {**QUEUE, "consumerGroup": GROUP}, f"Topic:{TOPIC}", "Get"),
    Case(Code.GET_MAX_OFFSET, QUEUE, f"Topic:{TOPIC}", "Get"),
    Case(Code.GET_TOPIC_CONFIG, {"topic": TOPIC}, f"Topic:{TOPIC}", "Get"),
    Case(Code.GET_TOPIC_STATS_INFO, {"topic": TOPIC}, f"Topic:{TOPIC}", "Get"),
    Case(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "Gone"}, "Group:Gone", "Delete"),
    Case(Code.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}, "Topic:Gone", "Delete"),
    Case(Code.GET_BROKER_CONFIG, {}, "Cluster:DefaultCluster", "Get"),
    Case(Code.UPDATE_BROKER_CONFIG, {}, "Cluster:DefaultCluster", "Update", b"traceOn=false"),
    Case(Code.GET_BROKER_RUNTIME_INFO, {}, "Cluster:DefaultCluster", "Get"),
    Case(Code.GET_ALL_TOPIC_CONFIG, {}, "Cluster:DefaultCluster", "Get"),
    Case(Code.GET_ALL_CONSUMER_OFFSET, {}, "Cluster:DefaultCluster", "Get"),
    Case(Code.AUTH_LIST_USER, {}, "Cluster:DefaultCluster", "Get"),
    Case(Code.AUTH_LIST_ACL, {}, "Cluster:DefaultCluster", "Get"),
    Case(
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, "Cluster:DefaultCluster", "Update", b'{"groupName":"Made_by_joe"}'
    ),
]
# Besides the right of the case: what its row asks for, too.
ALSO = {Code.PULL_MESSAGE: [(f"Group:{GROUP}", "Sub")], Code.QUERY_CONSUMER_OFFSET: [(f"Group:{GROUP}", "Get")]}


class Cluster:
    """A server, and connections of its users; ``allow`` and ``clear`` set the policies of joe."""

    def __init__(self, mq: RocketMQServer) -> None:
        self.broker, self.namesrv = mq.broker_addr, mq.namesrv_addr
        self._peers: list[SignedClient] = []
        self.root = self.peer(ROOT)
        self.ok(self.root.ask(Code.AUTH_CREATE_USER, {"username": JOE[0]}, b'{"password":"%s"}' % JOE[1].encode()))
        self.ok(
            self.root.ask(
                Code.UPDATE_AND_CREATE_TOPIC,
                {
                    "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
                    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
                },
            )
        )  # fmt: skip
        self.joe = self.peer(JOE)

    def peer(self, user: tuple[str, str] | None = None, address: str = "") -> SignedClient:
        peer = SignedClient(address or self.broker, user)
        self._peers.append(peer)
        return peer

    @staticmethod
    def ok(answer: RawAnswer) -> RawAnswer:
        assert answer.code == ResponseCode.SUCCESS, answer
        return answer

    def allow(self, *rights: tuple[str, str]) -> None:
        entries = [
            {"resource": resource, "actions": actions.split(","), "decision": "Allow"} for resource, actions in rights
        ]
        body = json.dumps({"policies": [{"policyType": "Custom", "entries": entries}]}).encode()
        self.ok(self.root.ask(Code.AUTH_CREATE_ACL, {"subject": "User:joe"}, body))

    def clear(self) -> None:
        self.root.ask(Code.AUTH_DELETE_ACL, {"subject": "User:joe"})

    def state(self) -> list[object]:
        """Return what requests could have changed."""
        config = self.root.ask(Code.GET_BROKER_CONFIG).body
        groups = self.root.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
        topics = self.root.ask(Code.GET_ALL_TOPIC_CONFIG).body
        users = self.root.ask(Code.AUTH_LIST_USER).body
        return [config, groups, topics, users, self.root.ask(Code.GET_MAX_OFFSET, QUEUE).fields]

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


@pytest.fixture(scope="module")
def cluster(prompt_refusals: None) -> Iterator[Cluster]:
    with RocketMQServer(PROPERTIES) as mq:
        made = Cluster(mq)
        yield made
        made.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code.name)
def test_a_request_is_served_with_its_right_and_changes_and_reveals_nothing_without(cluster: Cluster, case: Case):
    cluster.clear()
    others = [("Topic:Elsewhere", "All"), (case.resource, "List" if case.action != "List" else "Get")]
    cluster.allow(*others, *ALSO.get(case.code, []))
    before = cluster.state()
    for peer, words in (
        (cluster.joe, f"User:joe has no permission to access {case.resource}"),
        (cluster.peer(), "username cannot be null"),
        (cluster.peer((JOE[0], "guess")), "check signature failed"),
    ):
        answer = peer.ask(case.code, case.fields, case.body)
        assert answer.code == ResponseCode.NO_PERMISSION, answer
        assert words in answer.remark
        assert answer.body == b""
        assert answer.fields == {}
    assert cluster.state() == before

    cluster.allow((case.resource, case.action))
    answer = cluster.joe.ask(case.code, case.fields, case.body)
    assert answer.code != ResponseCode.NO_PERMISSION, answer


def test_sends_that_come_together_are_checked_one_by_one(cluster: Cluster):
    """Fast paths for requests that are alike must not lead around the check."""
    cluster.clear()
    cluster.allow((f"Topic:{TOPIC}", "Pub"))
    before = int(cluster.root.ask(Code.GET_MAX_OFFSET, QUEUE).fields["offset"])

    def frames(signer: RequestSigner | None, number: int) -> bytes:
        data = b""
        for opaque in range(1, number + 1):
            command = request(Code.SEND_MESSAGE_V2, send_fields(TOPIC), b"body")
            if signer is not None:
                signer.sign(command)
            command.opaque = opaque
            data += encode_frame(command)
        return data

    served = cluster.peer(JOE)
    for _ in range(4):  # a connection learns templates from what it has served
        served.client.send(frames(RequestSigner(*JOE), 64))
        assert [served.client.answer(opaque).code for opaque in range(1, 65)] == [ResponseCode.SUCCESS] * 64
    served.client.send(frames(None, 3) + frames(RequestSigner("joe", "guess"), 2))
    codes = {answer.code for _ in range(5) if (answer := served.client.read()) is not None}
    assert codes == {ResponseCode.NO_PERMISSION}
    after = int(cluster.root.ask(Code.GET_MAX_OFFSET, QUEUE).fields["offset"])
    assert after - before == 256


def test_a_policy_that_changes_counts_for_connections_that_live(cluster: Cluster):
    cluster.clear()
    cluster.allow((f"Topic:{TOPIC}", "Get"))
    peer = cluster.peer(JOE)
    cluster.ok(peer.ask(Code.GET_MAX_OFFSET, QUEUE))
    cluster.clear()
    assert peer.ask(Code.GET_MAX_OFFSET, QUEUE).code == ResponseCode.NO_PERMISSION
    cluster.allow((f"Topic:{TOPIC}", "Get"))
    cluster.ok(peer.ask(Code.GET_MAX_OFFSET, QUEUE))


@pytest.mark.parametrize("change", ["policy", "password", "disable", "delete"])
def test_a_held_pull_and_a_member_end_with_the_right(cluster: Cluster, change: str):
    cluster.clear()
    root, user = cluster.root, {"username": "eve"}
    cluster.ok(root.ask(Code.AUTH_CREATE_USER, user, b'{"password":"eve-secret"}'))
    rights = [{"resource": name, "actions": ["Sub"], "decision": "Allow"} for name in (f"Topic:{TOPIC}", "Group:*")]
    body = json.dumps({"policies": [{"policyType": "Custom", "entries": rights}]}).encode()
    cluster.ok(root.ask(Code.AUTH_CREATE_ACL, {"subject": "User:eve"}, body))
    puller, member = cluster.peer(("eve", "eve-secret")), cluster.peer(("eve", "eve-secret"))
    try:
        group = {**consumer_data("CG_Eve"), "subscriptionDataSet": []}
        heartbeat = {"clientID": "eve@1", "consumerDataSet": [group], "producerDataSet": []}
        cluster.ok(member.ask(Code.HEART_BEAT, {}, json.dumps(heartbeat).encode()))
        end = root.ask(Code.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}).fields["offset"]
        pull = request(Code.PULL_MESSAGE, pull_fields(TOPIC, int(end), sysFlag="6", suspendTimeoutMillis="60000"))
        pull.opaque = 77
        RequestSigner("eve", "eve-secret").sign(pull)
        puller.client.send(encode_frame(pull))
        # Answered after the pull: that is held by now.
        cluster.ok(puller.ask(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "CG_Eve"}))
        match change:
            case "policy":
                root.ask(Code.AUTH_DELETE_ACL, {"subject": "User:eve"})
            case "password":
                cluster.ok(root.ask(Code.AUTH_UPDATE_USER, user, b'{"password":"eve-secret-2"}'))
            case "disable":
                cluster.ok(root.ask(Code.AUTH_UPDATE_USER, user, b'{"userStatus":"disable"}'))
            case "delete":
                cluster.ok(root.ask(Code.AUTH_DELETE_USER, user))
        answer = puller.client.answer(77)
        assert answer.code == ResponseCode.NO_PERMISSION, answer
        assert "User:eve" in answer.remark
        # The broker would send it messages to verify and transactions to decide.
        while (frame := member.client.read()) is not None:
            assert frame.code == Code.NOTIFY_CONSUMER_IDS_CHANGED
    finally:
        root.ask(Code.AUTH_DELETE_USER, user)


VICTIM = "%RETRY%victim"
NEW_TOPIC = {
    "topic": VICTIM, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip
ON_RETRY_TOPIC = [
    (Code.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC, "Create"),
    (Code.SEND_MESSAGE_V2, send_fields(VICTIM), "Sub"),
    (Code.PULL_MESSAGE, pull_fields(VICTIM), "Sub"),
    (Code.GET_MAX_OFFSET, {"topic": VICTIM, "queueId": "0"}, "Get"),
    (Code.GET_TOPIC_CONFIG, {"topic": VICTIM}, "Get"),
    (Code.DELETE_TOPIC_IN_BROKER, {"topic": VICTIM}, "Delete"),
]


def test_a_retry_topic_belongs_to_its_group_also_if_it_is_made_by_hand(cluster: Cluster):
    cluster.clear()
    cluster.allow(("Topic:*", "All"), (f"Group:{GROUP}", "All"))
    for code, fields, _ in ON_RETRY_TOPIC:
        answer = cluster.joe.ask(code, fields, b"body")
        assert (answer.code, "Group:victim" in answer.remark) == (ResponseCode.NO_PERMISSION, True), answer
    for code, fields, action in ON_RETRY_TOPIC:
        cluster.allow(("Group:victim", action))
        answer = cluster.joe.ask(code, fields, b"body")
        assert answer.code != ResponseCode.NO_PERMISSION, answer
    body = json.dumps({"policies": [{"entries": [{"resource": f"Topic:{VICTIM}", "actions": ["Pub"]}]}]}).encode()
    answer = cluster.root.ask(Code.AUTH_CREATE_ACL, {"subject": "User:joe"}, body)
    assert (answer.code, "give Group:victim" in answer.remark) == (ResponseCode.INVALID_PARAMETER, True), answer


@pytest.mark.parametrize(
    "name",
    ["Ord\u0435rs", "Orders\u200b", "Orders\n", "Orders ", "Ord\uff45rs", "Orders\0", "Ord/../ers", "%RETRY%\u0435"],
    ids=ascii,
)
def test_names_outside_of_the_legal_alphabet_are_refused_whatever_covers_them(cluster: Cluster, name: str):
    cluster.clear()
    cluster.allow(("Topic:Ord*", "All"), ("Topic:*", "All"), ("Group:*", "All"))
    before = cluster.state()
    for code, fields, body in (
        (Code.UPDATE_AND_CREATE_TOPIC, {**NEW_TOPIC, "topic": name}, b""),
        (Code.SEND_MESSAGE_V2, send_fields(name), b"body"),
        (Code.PULL_MESSAGE, pull_fields(name), b""),
        (Code.PULL_MESSAGE, pull_fields(TOPIC, consumerGroup=name), b""),
    ):
        answer = cluster.joe.ask(code, fields, body)
        assert answer.code != ResponseCode.SUCCESS, answer
        assert "Traceback" not in answer.remark
        assert answer.body == b""
    for resource in (f"Topic:{name}", f"Group:{name}"):
        entry = {"resource": resource, "actions": ["Pub"], "decision": "Allow"}
        body = json.dumps({"policies": [{"policyType": "Custom", "entries": [entry]}]}).encode()
        answer = cluster.root.ask(Code.AUTH_CREATE_ACL, {"subject": "User:joe"}, body)
        assert answer.code == ResponseCode.INVALID_PARAMETER, answer
    assert cluster.state() == before


def test_names_that_differ_in_case_are_two(cluster: Cluster):
    cluster.clear()
    cluster.allow((f"Topic:{TOPIC.lower()}", "All"))
    answer = cluster.joe.ask(Code.GET_MAX_OFFSET, QUEUE)
    assert answer.code == ResponseCode.NO_PERMISSION


def test_a_user_without_super_rights_makes_no_super_user(cluster: Cluster):
    cluster.clear()
    cluster.allow(("Cluster:DefaultCluster", "Update"))
    answer = cluster.joe.ask(Code.AUTH_UPDATE_USER, {"username": "joe", "AccessKey": "root"}, b'{"userType":"Super"}')
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "The super user can only be update by super user" in answer.remark
    answer = cluster.joe.ask(Code.AUTH_UPDATE_USER, {"username": "root"}, b'{"password":"now-of-joe"}')
    assert answer.code == ResponseCode.NO_PERMISSION


def test_a_user_with_update_on_the_cluster_lets_nobody_in(cluster: Cluster):
    cluster.clear()
    cluster.allow(("Cluster:DefaultCluster", "Update"))
    for line in (b"brokerWhiteList=0.0.0.0/0", b"protectedMode=false"):
        answer = cluster.joe.ask(Code.UPDATE_BROKER_CONFIG, {}, line)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "decides who is let in, and User:joe is no Super user" in answer.remark
    cluster.ok(cluster.root.ask(Code.UPDATE_BROKER_CONFIG, {}, b"brokerWhiteList=127.0.0.1"))


WRITES = [
    (Code.REGISTER_BROKER, {"brokerName": "forged", "brokerAddr": "10.9.9.9:1", "clusterName": "DefaultCluster",
                            "haServerAddr": "10.9.9.9:2", "brokerId": "0"}, b"{}"),
    (Code.UNREGISTER_BROKER, {"brokerName": "broker-a", "brokerAddr": "127.0.0.1:1", "clusterName": "DefaultCluster",
                              "brokerId": "0"}, b""),
    (Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}, b""),
    (Code.DELETE_TOPIC_IN_NAMESRV, {"topic": TOPIC}, b""),
    (Code.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}, b""),
    (Code.UPDATE_NAMESRV_CONFIG, {}, b"orderMessageEnable=true"),
    (Code.GET_NAMESRV_CONFIG, {}, b""),
    (Code.GET_KV_CONFIG, {"namespace": "n", "key": "k"}, b""),
]  # fmt: skip


@pytest.mark.parametrize(("code", "fields", "body"), WRITES, ids=lambda value: getattr(value, "name", None))
def test_a_name_server_takes_writes_from_its_users_alone(cluster: Cluster, code: Code, fields, body: bytes):
    route = {"topic": TOPIC}
    before = cluster.peer(address=cluster.namesrv).ask(Code.GET_ROUTEINFO_BY_TOPIC, route)
    cluster.ok(before)
    # joe is a user of the broker; the name server has users of its own.
    for user in (None, JOE, ("inner", "guess")):
        answer = cluster.peer(user, cluster.namesrv).ask(code, fields, body)
        assert answer.code == ResponseCode.NO_PERMISSION, answer
        assert answer.body == b""
    assert cluster.peer(address=cluster.namesrv).ask(Code.GET_ROUTEINFO_BY_TOPIC, route).body == before.body
    if code in {Code.GET_NAMESRV_CONFIG, Code.PUT_KV_CONFIG}:
        cluster.ok(cluster.peer(INNER, cluster.namesrv).ask(code, fields, body))


async def test_routes_need_a_right_where_that_is_asked_for(tmp_path: Path):
    path = tmp_path / "namesrv.properties"
    lines = {**PROPERTIES, "authorizeRouteReads": "true", "listenPort": "0", "bindAddress": "127.0.0.1"}
    lines |= {"kvConfigPath": f"{tmp_path}/kvConfig.json"}
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    namesrv = NamesrvController(load_namesrv_settings(path))
    await namesrv.start()
    try:
        codes = [
            await asyncio.to_thread(route_code, f"127.0.0.1:{namesrv.port}", user)
            for user in (None, ("root", "guess"), ROOT)
        ]
    finally:
        await namesrv.stop()
    assert codes == [ResponseCode.NO_PERMISSION, ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST]


def route_code(address: str, user: tuple[str, str] | None) -> int:
    peer = SignedClient(address, user)
    try:
        return peer.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}).code
    finally:
        peer.close()


def test_users_and_policies_outlive_a_restart(tmp_path):
    with RocketMQServer(PROPERTIES, store=tmp_path) as mq:
        cluster = Cluster(mq)
        cluster.allow((f"Topic:{TOPIC}", "Get"))
        cluster.close()
    with RocketMQServer(PROPERTIES, store=tmp_path) as mq:
        joe = SignedClient(mq.broker_addr, JOE)
        Cluster.ok(joe.ask(Code.GET_MAX_OFFSET, QUEUE))
        assert joe.ask(Code.GET_BROKER_CONFIG).code == ResponseCode.NO_PERMISSION
        joe.client.close()
    assert all(JOE[1].encode() not in path.read_bytes() for path in tmp_path.rglob("*.json"))


@pytest.mark.long
async def test_a_slave_takes_over_users_and_policies_and_checks_by_them_also_as_a_master(tmp_path: Path):
    with RocketMQServer(PROPERTIES) as mq:
        cluster = await asyncio.to_thread(Cluster, mq)
        await asyncio.to_thread(cluster.allow, (f"Topic:{TOPIC}", "Get"))
        slave = {"brokerId": "1", "brokerRole": "SLAVE"}
        broker = DevBroker(
            broker_settings(0, tmp_path, mq.namesrv_addr, properties=small_files({**PROPERTIES, **slave}))
        )
        await broker.start()
        try:
            access = broker.controller.access
            assert access is not None
            await until(lambda: "joe" in access.store.rules.acls, 40)
            await until(lambda: broker.controller.replication.problem() == "", 40)
            joe, root = SignedClient(broker.address, JOE), SignedClient(broker.address, ROOT)
            assert (await asyncio.to_thread(joe.ask, Code.GET_MAX_OFFSET, QUEUE)).code == ResponseCode.SUCCESS
            assert (await asyncio.to_thread(joe.ask, Code.GET_BROKER_CONFIG)).code == ResponseCode.NO_PERMISSION
            refused = await asyncio.to_thread(root.ask, Code.AUTH_DELETE_USER, {"username": "joe"})
            assert "make the change at the master" in refused.remark
            for peer in (joe, root):
                peer.close()
        finally:
            await broker.stop()
            cluster.close()
        await asyncio.to_thread(mq.stop_broker)
        await promoted(tmp_path, mq.namesrv_addr)


async def promoted(store: Path, namesrv: str) -> None:
    """Run the store of a slave as a master: its users are served as before, and rights change there."""
    broker = DevBroker(broker_settings(0, store, namesrv, properties=small_files(PROPERTIES)))
    await broker.start()
    joe, root = SignedClient(broker.address, JOE), SignedClient(broker.address, ROOT)
    try:
        Cluster.ok(await asyncio.to_thread(joe.ask, Code.GET_MAX_OFFSET, QUEUE))
        assert (await asyncio.to_thread(joe.ask, Code.GET_BROKER_CONFIG)).code == ResponseCode.NO_PERMISSION
        Cluster.ok(await asyncio.to_thread(root.ask, Code.AUTH_DELETE_ACL, {"subject": "User:joe"}))
        refused = await asyncio.to_thread(joe.ask, Code.GET_MAX_OFFSET, QUEUE)
        assert refused.code == ResponseCode.NO_PERMISSION
    finally:
        joe.close()
        root.close()
        await broker.stop()
