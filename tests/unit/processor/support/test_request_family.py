from dataclasses import dataclass

import pytest

from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.admin import DeleteTopicRequestHeader, GetTopicConfigRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.support.request_family import NO_CHANGES, answers, routes_of
from tests.support.fakes import FakeConnection
from tests.support.processor_calls import call, refusal


@dataclass(frozen=True, slots=True)
class Family:
    remark: str

    @answers(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader, Audience.CLIENT)
    def get_topic_config(
        self, _connection: Connection, command: RemotingCommand[GetTopicConfigRequestHeader]
    ) -> Command:
        return response(remark=f"{self.remark} {command.header.topic}")

    @answers(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader, at_slave=NO_CHANGES)
    async def delete_topic_in_broker(
        self, _connection: Connection, _command: RemotingCommand[DeleteTopicRequestHeader]
    ) -> Command:
        return response(remark="deleted")

    @answers(RequestCode.SEND_MESSAGE, takes_large_bodies=True)
    @answers(RequestCode.SEND_BATCH_MESSAGE)
    def send(self, _connection: Connection, _command: Command) -> Command:
        return response()


def test_a_route_has_what_the_decorator_says():
    routes = routes_of([Family("topic")])
    route = routes[RequestCode.GET_TOPIC_CONFIG]

    assert (route.header_type, route.audience) == (GetTopicConfigRequestHeader, Audience.CLIENT)
    assert (route.takes_large_bodies, route.runs, route.runs_later) == (False, None, False)
    assert call(route.process, GetTopicConfigRequestHeader("T")).remark == "topic T"
    assert routes[RequestCode.DELETE_TOPIC_IN_BROKER].audience is Audience.ADMINISTRATION
    assert routes[RequestCode.DELETE_TOPIC_IN_BROKER].runs_later


def test_a_method_may_answer_several_codes():
    routes = routes_of([Family("")])
    assert routes[RequestCode.SEND_MESSAGE].takes_large_bodies
    assert not routes[RequestCode.SEND_BATCH_MESSAGE].takes_large_bodies


def test_each_server_has_its_own_routes():
    one, other = routes_of([Family("one")]), routes_of([Family("other")])
    command = request(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader("T"))
    answers = [routes[RequestCode.GET_TOPIC_CONFIG].process(FakeConnection(), command) for routes in (one, other)]
    assert [getattr(answer, "remark", None) for answer in answers] == ["one T", "other T"]


def test_a_slave_rejects_what_would_change_its_tables():
    routes = routes_of([Family("")], is_slave=True)

    code, remark = refusal(routes[RequestCode.DELETE_TOPIC_IN_BROKER].process, DeleteTopicRequestHeader("T"))
    assert (code, remark) == (ResponseCode.SYSTEM_ERROR, NO_CHANGES.remark)
    assert routes[RequestCode.GET_TOPIC_CONFIG].header_type is GetTopicConfigRequestHeader


def test_two_methods_for_one_code_are_an_error():
    with pytest.raises(ValueError, match="request code 215 has two routes"):
        routes_of([Family("a"), Family("b")])
