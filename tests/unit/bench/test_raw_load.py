"""Pulls and sends over a real broker: what is counted was given, and a wrong answer is an error."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.big_store import QUEUES, TOPIC, generator_of
from bench.harness import BenchError
from bench.raw_load import commit_offsets, log_end, pull, send
from bench.servers import Server, opened
from bench.store_generator import StoreGenerator
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="servers are measured on Linux")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> StoreGenerator:
    made = generator_of(tmp_path_factory.mktemp("store"), 1000)
    made.write()
    made.mark_clean()
    return made


@pytest.fixture(scope="module")
def broker(made: StoreGenerator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with opened(Path(made.config.store_path_root_dir), tmp_path_factory.mktemp("broker")) as found:
        yield found


def test_each_queue_is_pulled_from_where_it_is_said(broker: Server):
    pulled = pull(broker.address, TOPIC, list(range(QUEUES)), 50)

    assert (pulled.messages, pulled.pulls) == (50 * QUEUES, 2 * QUEUES)
    assert pulled.rate > 0


def test_messages_that_are_not_there_are_an_error(broker: Server):
    with pytest.raises(BenchError, match="the broker answered 19: "):
        pull(broker.address, TOPIC, [120] * QUEUES, 50)


def test_what_is_sent_is_stored_as_generated_messages_are(broker: Server, made: StoreGenerator):
    end = log_end(broker.address)

    send(broker.address, made.messages, 200)

    assert log_end(broker.address) == end + 200 * made.template.size
    assert pull(broker.address, TOPIC, [125] * QUEUES, 25).messages == 200


def test_a_group_begins_where_it_is_said(broker: Server):
    commit_offsets(broker.address, "bench_group", TOPIC, range(10, 10 + QUEUES))

    with RawClient(broker.address) as client:
        answer = client.ask(14, {"consumerGroup": "bench_group", "topic": TOPIC, "queueId": "3"})
    assert answer.fields["offset"] == "13"
