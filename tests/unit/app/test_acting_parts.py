"""A slave hands over to a master that is the right one and has all of its log."""

from types import SimpleNamespace
from typing import Any

import pytest

from rocketbroker.app.acting_parts import ActingParts
from rocketbroker.broker.out.master_address import Master, MasterAddress
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.common.lifecycle import PartList
from tests.support.fakes import FakeClock

A = Master("10.0.0.1:10911", "10.0.0.1:10912")
B = Master("10.0.0.2:10911", "10.0.0.2:10912")


class Log:
    """The log of a slave: ``fits`` is the result of its comparison."""

    def __init__(self, *, fits: bool) -> None:
        self.fits = fits
        self.comparisons = 0
        self.is_fed = False
        self.problem = "" if fits else "the master's log ends at 7"

    def compare_again(self) -> None:
        self.comparisons += 1

    async def is_compared(self, _timeout_s: float) -> bool:
        return self.fits


def slave(log: Log, *, mode: bool = True) -> tuple[ActingParts, MasterAddress]:
    """Return the parts of a slave that no name server has answered yet."""
    address = MasterAddress(lambda: "10.0.0.9:10911")
    unused: Any = SimpleNamespace(find_name_servers=None, register_all=None)
    settings = BrokerConfig(broker_id=1, enable_slave_acting_master=mode)
    client: Any = log
    parts = ActingParts(settings, unused, unused, unused, unused, address, client, PartList(), unused, FakeClock())
    return parts, address


async def test_a_slave_hands_over_once_its_log_was_compared():
    log = Log(fits=True)
    parts, address = slave(log)

    await parts.hand_over(A)

    assert (log.comparisons, address.master) == (1, A)


async def test_a_slave_with_messages_that_the_master_lacks_does_not_hand_over():
    parts, _ = slave(Log(fits=False))
    with pytest.raises(BrokerResponseError, match=r"not known to have all messages.*ends at 7") as error:
        await parts.hand_over(A)
    assert error.value.code == ResponseCode.SYSTEM_ERROR


async def test_a_slave_follows_no_other_master_than_that_of_its_name_servers():
    log = Log(fits=True)
    parts, address = slave(log)
    address.registered("ns1", A)

    with pytest.raises(BrokerResponseError, match=r"10\.0\.0\.2:10911 cannot be the master") as error:
        await parts.hand_over(B)

    assert error.value.code == ResponseCode.INVALID_PARAMETER
    assert (log.comparisons, address.master) == (0, A)


async def test_a_slave_without_the_mode_follows_no_announced_master():
    log = Log(fits=True)
    parts, address = slave(log, mode=False)

    with pytest.raises(BrokerResponseError, match="enableSlaveActingMaster is false") as error:
        await parts.hand_over(A)

    assert error.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (log.comparisons, address.master) == (0, Master())
