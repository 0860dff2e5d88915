"""Options of all public classes, checked where they enter."""

import inspect
import math
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np
import pytest

from rocketbroker import client as public
from rocketbroker.client import (
    AdminClient,
    AllocateMachineRoomNearby,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    ClientConfig,
    ClientInstance,
    CompressionType,
    ConsumeFromWhere,
    FlowControl,
    InvalidMessageError,
    LitePullConsumer,
    LocalFileOffsetStore,
    LocalTransactionState,
    Message,
    MessageModel,
    MessageSelector,
    OptionError,
    Producer,
    PullConsumer,
    PushConsumer,
    SessionCredentials,
    StartFrom,
    TransactionProducer,
)
from rocketbroker.client.core.options import CheckedStruct, checked

NOWHERE = "127.0.0.1:1"


def refusal(make: Callable[..., object], *values: object, **options: object) -> str:
    with pytest.raises(OptionError) as caught:
        make(*values, **options)
    return str(caught.value)


def test_each_public_class_that_takes_options_checks_them():
    """A class of the package that can be made checks its arguments, or is made by the client itself."""
    made_by_the_client = {"PullResult", "ReceivedMessage", "SendResult", "TransactionSendResult", "SendMessageContext"}
    unchecked = {
        name
        for name in public.__all__
        if inspect.isclass(made := getattr(public, name))
        and not issubclass(made, BaseException | Enum | dict)
        and not getattr(made, "_is_protocol", False)
        and not issubclass(made, CheckedStruct)
        and len(inspect.signature(made).parameters) > 0
        and not hasattr(made.__init__, "__wrapped__")
    }
    assert unchecked == made_by_the_client


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"message_model": "CLUSTER"}, "PushConsumer: message_model is 'CLUSTER'; did you mean CLUSTERING?"),
        ({"message_model": 3}, "message_model is 3; give one of BROADCASTING, CLUSTERING"),
        ({"consume_from_where": "start"}, "consume_from_where is 'start'; give one of CONSUME_FROM_LAST_OFFSET, "),
        ({"consume_from_where": "FIRST_OFFSET"}, "did you mean CONSUME_FROM_FIRST_OFFSET?"),
        ({"consume_timeout_s": "5"}, "is '5'; give a number of seconds above 0, 5 without quotes"),
        ({"consume_timeout_s": 0}, "consume_timeout_s is 0; give a number of seconds above 0"),
        ({"consume_timeout_s": -1}, "consume_timeout_s is -1; give a number of seconds above 0"),
        ({"consume_timeout_s": float("nan")}, "consume_timeout_s is nan; give a number of seconds above 0"),
        ({"consume_timeout_s": float("inf")}, "consume_timeout_s is inf; give a number of seconds above 0"),
        ({"consume_timeout_s": True}, "consume_timeout_s is True; give a number of seconds above 0"),
        ({"suspend_current_queue_s": -0.1}, "is -0.1; give a number of seconds from 0"),
        ({"concurrency": 2.5}, "concurrency is 2.5; give a whole number from 1"),
        ({"max_reconsume_times": -2}, "max_reconsume_times is -2; give a whole number from -1"),
        ({"orderly": "false"}, "orderly is 'false'; give True or False"),
        ({"pull_batch_size": 0}, "pull_batch_size is 0; give a whole number from 1"),
        ({"rebalance_interval_s": None}, "rebalance_interval_s is None; give a number of seconds above 0"),
        ({"flow_control": 1000}, "flow_control is 1000; give a FlowControl, or None"),
        ({"strategy": "AVG"}, "strategy is 'AVG'; give an object with allocate, name (AllocateMessageQueueStrategy)"),
        (
            {"offset_store": Path("x")},
            "give an object with close, offsets, persist, read, remove, update (OffsetStore)",
        ),
        ({"hooks": print}, "hooks is <built-in function print>; give a list"),
        ({"hooks": [print]}, "in this list, give an object with consume_message (ConsumeMessageHook)"),
        ({"handler": "handle"}, "handler is 'handle'; give a function, or None"),
        ({"clock": 5}, "clock is 5; give an object with"),
        ({"client": NOWHERE}, "client is '127.0.0.1:1'; give a ClientInstance, or None"),
        ({"config": 9876}, "config is 9876; give text, or a ClientConfig"),
        ({"consumeTimeout": 5}, "PushConsumer has no argument consumeTimeout; did you mean consume_timeout_s?"),
        ({"messageModel": 5}, "PushConsumer has no argument messageModel; did you mean message_model?"),
        ({"zzz": 5}, "PushConsumer has no argument zzz; there are group, config, client, handler,"),
    ],
)
def test_an_option_that_is_not_allowed_is_named_with_what_to_give(options: dict[str, Any], text: str):
    assert text in refusal(PushConsumer, "CG", **({"config": NOWHERE} | options))


def test_seconds_may_be_numbers_of_any_kind_and_endless_where_the_option_says_so():
    kinds: list[Any] = [5, 0.5, np.float32(5), np.int64(5)]
    for seconds in kinds:
        PushConsumer("CG", NOWHERE, consume_timeout_s=seconds)
    PushConsumer("CG", NOWHERE, damaged_message_retry_s=math.inf)
    PullConsumer("CG", NOWHERE).iterate("T", damaged_message_retry_s=math.inf)
    text = "damaged_message_retry_s is -inf; give a number of seconds from 0, or math.inf"
    assert text in refusal(PushConsumer, "CG", NOWHERE, damaged_message_retry_s=-math.inf)


@pytest.mark.parametrize(
    ("make", "values", "options", "text"),
    [
        (Producer, (7, NOWHERE), {}, "Producer: group is 7; give text"),
        (Producer, ("PG", NOWHERE), {"send_timeout_s": "3"}, "send_timeout_s is '3'"),
        (Producer, ("PG", NOWHERE), {"compress_type": "gzip"}, "give one of ZLIB, LZ4, ZSTD"),
        (Producer, ("PG", NOWHERE), {"compress_level": 10}, "compress_level is 10; give a whole number from 0 to 9"),
        (Producer, ("PG", NOWHERE), {"retry_times": 3}, "no argument retry_times; did you mean"),
        (TransactionProducer, ("PG", NOWHERE), {"check": 7}, "TransactionProducer: check is 7; give a function"),
        (LitePullConsumer, ("CG", NOWHERE), {"auto_commit": "no"}, "LitePullConsumer: auto_commit is 'no'"),
        (LitePullConsumer, ("CG", NOWHERE), {"autoCommit": True}, "did you mean auto_commit?"),
        (PullConsumer, ("CG", NOWHERE), {"consumer_pull_timeout_s": 0}, "consumer_pull_timeout_s is 0"),
        (PullConsumer, ("CG", NOWHERE), {"pull_timeout_s": 3}, "did you mean consumer_pull_timeout_s?"),
        (AdminClient, (NOWHERE,), {"timeout_s": "5"}, "AdminClient: timeout_s is '5'"),
        (AdminClient, (NOWHERE,), {"timeout": 5}, "AdminClient has no argument timeout; did you mean timeout_s?"),
        (ClientInstance, (None,), {}, "ClientInstance: config is None"),
        (
            ClientConfig,
            (),
            {"namesrvAddr": NOWHERE},
            "ClientConfig has no argument namesrvAddr; did you mean namesrv_addr?",
        ),
        (ClientConfig, (), {"enable_trace": 1}, "ClientConfig: enable_trace is 1; give True or False"),
        (ClientConfig, (), {"credentials": "ak:sk"}, "credentials is 'ak:sk'; give a SessionCredentials, or None"),
        (ClientConfig, ([NOWHERE],), {}, "namesrv_addr is ['127.0.0.1:1']; give text"),
        (SessionCredentials, ("ak", b"hidden"), {}, "secret_key is of type bytes; give text"),
        (
            FlowControl,
            (),
            {"messages_per_queue": "9"},
            "FlowControl: messages_per_queue is '9'; give a whole number from 1",
        ),
        (FlowControl, (), {"message_per_queue": 9}, "did you mean messages_per_queue?"),
        (MessageSelector, ("a > 5", "SQL"), {}, "MessageSelector: expression_type is 'SQL'; did you mean SQL92?"),
        (LocalFileOffsetStore, (7,), {}, "LocalFileOffsetStore: path is 7; give a path"),
        (AllocateMessageQueueByConfig, ([1],), {}, "in this list, give a MessageQueue"),
        (AllocateMessageQueueByMachineRoom, ("room-1",), {}, "rooms is 'room-1'; give a list"),
        (AllocateMessageQueueConsistentHash, (10, 7), {}, "hash_function is 7; give a function"),
        (AllocateMachineRoomNearby, (7, 7), {}, "strategy is 7; give an object with allocate, name"),
    ],
)
def test_every_class_names_a_wrong_option(
    make: Callable[..., object], values: tuple[object, ...], options: dict[str, Any], text: str
):
    assert text in refusal(make, *values, **options)


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ("CLUSTERING", MessageModel.CLUSTERING),
        ("clustering", MessageModel.CLUSTERING),
        ("Broadcasting", MessageModel.BROADCASTING),
        (MessageModel.BROADCASTING, MessageModel.BROADCASTING),
    ],
)
def test_a_message_model_may_be_a_text(given: Any, model: MessageModel):
    consumer = PushConsumer("CG", NOWHERE, message_model=given)
    assert consumer._settings.message_model is model
    # What went wrong with a text: neither retries nor offsets at the broker.
    assert (consumer._service._send_back is not None) is (model is MessageModel.CLUSTERING)


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ("first", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
        ("CONSUME_FROM_FIRST_OFFSET", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
        ("last", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        ("timestamp", ConsumeFromWhere.CONSUME_FROM_TIMESTAMP),
    ],
)
def test_a_start_may_be_a_text(given: Any, where: ConsumeFromWhere):
    consumer = LitePullConsumer("CG", NOWHERE, consume_from_where=given, consume_timestamp_ms=1)
    assert consumer._settings.consume_from_where is where


def test_other_texts_and_numbers_are_taken():
    class Index:
        def __index__(self) -> int:
            return 4

    hint: Any = Index()
    lz4: Any = "lz4"
    producer = Producer("PG", NOWHERE, compress_type=lz4, back_pressure_sends=hint, send_timeout_s=2)
    assert producer._compression.kind is CompressionType.LZ4
    tag: Any = "tag"
    assert MessageSelector("TagA", tag).expression_type == "TAG"
    path: Any = "offsets.json"
    assert LocalFileOffsetStore(path).path == Path("offsets.json")


async def test_arguments_of_methods_are_checked():
    async with PushConsumer("CG", NOWHERE) as consumer:
        with pytest.raises(
            OptionError, match=r"PushConsumer.subscribe: expression is .*give text, or a MessageSelector"
        ):
            await consumer.subscribe("T", ["a", "b"])  # type: ignore[arg-type]
    async with LitePullConsumer("CG", NOWHERE) as lite:
        with pytest.raises(OptionError, match=r"LitePullConsumer.poll: timeout_s is '1'; .*1 without quotes"):
            await lite.poll("1")  # type: ignore[arg-type]
        with pytest.raises(OptionError, match=r"poll has no argument max_message; did you mean max_messages\?"):
            await lite.poll(max_message=1)  # type: ignore[call-arg]
    async with Producer("PG", NOWHERE) as producer:
        with pytest.raises(OptionError, match=r"Producer.send_batch: messages is .*; give a list"):
            await producer.send_batch(Message("T", b"x"))  # type: ignore[arg-type]
        with pytest.raises(InvalidMessageError, match=r"'text' is no Message; give Message\(topic, body\)"):
            await producer.send("text")  # type: ignore[arg-type]
    pull = PullConsumer("CG", NOWHERE)
    with pytest.raises(OptionError, match=r"PullConsumer.iterate: start_from is 'begin'; give one of COMMITTED"):
        pull.iterate("T", start_from="begin")  # type: ignore[arg-type]
    first: Any = "first"
    await pull.iterate("T", start_from=first).aclose()
    assert StartFrom.FIRST.name.lower() == first


def test_a_subclass_may_have_arguments_of_its_own():
    class Own(Producer):
        def __init__(self, shop: str, **options: Any) -> None:
            super().__init__(f"{shop}-producers", NOWHERE, **options)

    assert Own("a", send_timeout_s=1).group == "a-producers"
    assert "Own: send_timeout_s is '1'" in refusal(Own, "a", send_timeout_s="1")


def test_a_function_keeps_its_signature_and_other_arguments():
    class Open:
        @checked
        def take(self, number: int, *rest: str, **others: object) -> tuple[object, ...]:
            """Take anything."""
            return number, rest, others

    assert Open().take(1, "a", "b", c=3) == (1, ("a", "b"), {"c": 3})
    assert Open.take.__doc__ == "Take anything."
    assert inspect.signature(PushConsumer).parameters["handler"].default is None
    assert set(get_type_hints(Message)) >= {"topic", "body"}


def test_a_check_returns_the_checked_struct_itself():
    config = ClientConfig(NOWHERE)
    assert msgspec.structs.replace(config, unit_name="u") == ClientConfig(NOWHERE, unit_name="u")
    assert TransactionProducer("PG", config, check=lambda _: LocalTransactionState.UNKNOWN).group == "PG"
