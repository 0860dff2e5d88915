"""Pull requests of one consumer group (PullAPIWrapper)."""

from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.pull_result import PullResult, pull_result
from rocketbroker.client.core.requests import check_success, client_request
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import CheckClientRequestBody, SubscriptionData
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.headers.message import (
    FLAG_SUBSCRIPTION,
    FLAG_SUSPEND,
    PullMessageRequestHeader,
)
from rocketbroker.codec.remoting.request_code import RequestCode


async def check_filter(client: ClientInstance, group: str, subscription: SubscriptionData) -> None:
    """Check that all brokers of a topic can apply the filter of a subscription (CHECK_CLIENT_CONFIG).

    Raises:
        TopicRouteError, NameServerError: no route for the topic.
        BrokerResponseError: a broker cannot apply it; the remark has its reason.
        RemotingError: a broker does not answer.
    """
    route = await client.routes.route(subscription.topic)
    if subscription.expression_type == "TAG":
        return
    body = CheckClientRequestBody(client.client_id, group, subscription).encode()
    for queue in {queue.broker_name: queue for queue in route.subscribe_queues}.values():
        answer = await client.invoke_at_broker(queue, client_request(RequestCode.CHECK_CLIENT_CONFIG, body=body))
        check_success(answer)


class PullAPIWrapper:
    """Pulls from the broker that each queue's last answer suggested.

    Args:
        client: connections and routes.
        group: the consumer group.
        pull_timeout_s: limit of a pull on top of the time that the broker may hold it.
    """

    def __init__(self, client: ClientInstance, group: str, pull_timeout_s: float) -> None:
        self._client = client
        self._group = group
        self._pull_timeout_s = pull_timeout_s
        self._pull_from: dict[MessageQueue, int] = {}

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_nums: int,
        subscription: SubscriptionData,
        suspend_timeout_s: float,
    ) -> PullResult:
        """Return messages of a queue from an offset on.

        Raises:
            TopicRouteError, BrokerNotFoundError, NameServerError: no address for the broker.
            BrokerResponseError: the broker refused.
            RemotingError: the broker does not answer.
        """
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_nums,
            sys_flag=FLAG_SUBSCRIPTION | (FLAG_SUSPEND if suspend_timeout_s > 0 else 0),
            commit_offset=0,
            suspend_timeout_millis=round(suspend_timeout_s * 1000),
            sub_version=subscription.sub_version,
            subscription=subscription.sub_string,
            expression_type=subscription.expression_type,
        )
        broker_id = self._pull_from.get(queue, MASTER_ID)
        command = client_request(RequestCode.PULL_MESSAGE, header)
        timeout_s = self._pull_timeout_s + suspend_timeout_s
        answer = await self._client.invoke_at(queue, broker_id, command, timeout_s, exactly=False)
        result = pull_result(answer, frozenset(subscription.tags_set), offset)
        self._pull_from[queue] = result.suggest_which_broker_id
        return result

    def forget(self, queue: MessageQueue) -> None:
        """Forget the suggested broker of a queue that is no longer pulled."""
        self._pull_from.pop(queue, None)
