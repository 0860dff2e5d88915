from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable, TopicList
from rocketbroker.codec.remoting.bodies.topic_config import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.scripted_server import Script, ScriptedServer

TOPICS = ("b", "a", "broker-a", "TBW102", "rmq_sys_wheel_timer", "%RETRY%CG", "%DLQ%CG")
GROUPS = ("CG", "A_CG", "TOOLS_CONSUMER", "DEFAULT_PRODUCER", "CID_RMQ_SYS_TRANS", "CID_ONSAPI_PULL")


def answering(body: RemotingSerializable) -> Script:
    return lambda _fields, _body: response(body=body.encode())


async def test_topics_and_groups_of_users_are_returned_by_name():
    topics = {name: TopicConfig(name) for name in TOPICS} | {"no": TopicConfig("no", perm=0), "x": TopicConfig(perm=8)}
    groups = {name: SubscriptionGroupConfig(name) for name in GROUPS}
    bodies = {
        RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigSerializeWrapper(topics),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: TopicList(["broker-a"]),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupWrapper(groups),
    }
    broker = ScriptedServer({code: answering(body) for code, body in bodies.items()})
    async with broker, AdminClient("127.0.0.1:1") as admin:
        assert list(await admin.get_user_topic_config(broker.address)) == ["a", "b", "no"]
        special = await admin.get_user_topic_config(broker.address, special_topic=True)
        assert list(special) == ["%DLQ%CG", "%RETRY%CG", "a", "b", "no"]
        assert list(await admin.get_user_subscription_group(broker.address)) == ["A_CG", "CG"]
