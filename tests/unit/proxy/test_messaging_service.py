"""The list of methods."""

import re
from pathlib import Path

import pytest

pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")

from rocketbroker.proxy import messaging_pb2
from rocketbroker.proxy.messaging_service import MessagingService
from tests.support.local_broker import served_broker
from tests.support.proxy_brokers import ENDPOINTS, FakeBrokers


def test_each_method_of_the_service_is_there():
    methods = messaging_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name
    service = MessagingService(FakeBrokers(), ENDPOINTS)
    names = {re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in methods}

    assert len(names) == 12
    assert all(callable(getattr(service, name)) for name in names)


async def test_nothing_runs_after_a_stop(tmp_path: Path):
    async with served_broker(tmp_path) as (_, service):
        assert len(service._receipts._tasks) == 1

    assert len(service._receipts._tasks) == 0
