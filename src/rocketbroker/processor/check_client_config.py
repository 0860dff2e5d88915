"""CHECK_CLIENT_CONFIG (46): checks that the broker can apply a filter (ClientManageProcessor.checkClientConfig)."""

from rocketbroker.broker.client.consumer_group_info import SubscriptionLimit, is_tag_type
from rocketbroker.broker.consumer_filter_manager import filter_of
from rocketbroker.codec.remoting.bodies.client import CheckClientRequestBody
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, MQFilterError
from rocketbroker.processor.support.pull_filter import not_supported
from rocketbroker.processor.support.request_body import read_body


class CheckClientConfigProcessor:
    """Accepts tags and, with ``enablePropertyFilter``, valid SQL92 expressions, of a length allowed in heartbeats."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._limit = SubscriptionLimit(config)

    def process(self, _connection: Connection, command: Command) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if filters on properties are off; SUBSCRIPTION_PARSE_FAILED if the
                expression is wrong or too long.
        """
        subscription = read_body(command.body, CheckClientRequestBody).subscription_data
        if subscription is None:
            return response()
        self._limit.check_data(subscription)
        if is_tag_type(subscription.expression_type):
            return response()
        if not self._config.enable_property_filter:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, not_supported(subscription.expression_type))
        try:
            filter_of(subscription.expression_type, subscription.sub_string)
        except MQFilterError as error:
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return response()
