"""EXCHANGE_BROKER_HA_INFO at a master and at a slave."""

import pytest

from rocketbroker.broker.registration.namesrv_link import Master
from rocketbroker.codec.remoting.headers.admin import ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.admin.exchange_broker_ha_info import ExchangeBrokerHaInfoProcessor
from tests.support.fakes import FakeConnection

OWN = ExchangeHAInfoResponseHeader("10.0.0.1:10912", 0, "10.0.0.1:10911")


async def ask(own: ExchangeHAInfoResponseHeader | None, ha_address: str | None) -> tuple[Command, list[Master]]:
    """Return the answer of a broker, and the masters that it handed over to."""
    masters: list[Master] = []

    async def hand_over(master: Master) -> None:
        masters.append(master)

    header = ExchangeHAInfoRequestHeader(ha_address, 0, "10.0.0.9:10911" if ha_address else None)
    command = request(RequestCode.EXCHANGE_BROKER_HA_INFO, header)
    return await ExchangeBrokerHaInfoProcessor(lambda: own, hand_over).process(FakeConnection(), command), masters


async def test_a_slave_takes_the_addresses_of_its_master():
    answer, masters = await ask(None, "10.0.0.9:10912")
    assert (answer.code, masters) == (ResponseCode.SUCCESS, [Master("10.0.0.9:10911", "10.0.0.9:10912")])


async def test_a_master_answers_its_own():
    answer, masters = await ask(OWN, None)
    assert (answer.code, answer.header, masters) == (ResponseCode.SUCCESS, OWN, [])


async def test_a_master_follows_no_other():
    with pytest.raises(BrokerResponseError, match="is a master itself") as error:
        await ask(OWN, "10.0.0.9:10912")
    assert error.value.code == ResponseCode.INVALID_PARAMETER


async def test_a_slave_has_no_addresses_to_answer():
    answer, masters = await ask(None, None)
    assert (answer.code, answer.header, masters) == (ResponseCode.SUCCESS, None, [])
