"""GET_BROKER_MEMBER_GROUP (901): the brokers that share a name."""

from rocketbroker.codec.remoting.bodies.route import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import GetBrokerMemberGroupRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.namesrv.broker_table import BrokerTable

# RocketMQ does not clear the initial remark of this answer.
_REMARK = "not set any response code"


class GetBrokerMemberGroupProcessor:
    """Answers addresses by id, none for an unknown name."""

    def __init__(self, brokers: BrokerTable) -> None:
        self._brokers = brokers

    def process(self, connection: Connection, command: RemotingCommand[GetBrokerMemberGroupRequestHeader]) -> Command:
        """Answer the request."""
        header = command.header
        data = self._brokers.by_name.get(header.broker_name)
        group = BrokerMemberGroup(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs={} if data is None else data.broker_addrs,
        )
        body = GetBrokerMemberGroupResponseBody(broker_member_group=group)
        return response(ResponseCode.SUCCESS, _REMARK, body=body.encode())
