"""CHECK_CLIENT_CONFIG (46): can the broker filter so? (ClientManageProcessor.checkClientConfig)."""

from rocketbroker.broker.subscription import is_tag_type
from rocketbroker.codec.remoting.bodies.heartbeat import CheckClientRequestBody
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.request_body import read_body


class CheckClientConfigProcessor:
    """Says yes to tags; SQL92 is not served."""

    def process(self, _connection: Connection, command: Command) -> Command:
        """Answer the request."""
        subscription = read_body(command.body, CheckClientRequestBody).subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return response()
        remark = f"The broker does not support consumer to filter message by {subscription.expression_type}"
        return response(ResponseCode.SYSTEM_ERROR, remark)
