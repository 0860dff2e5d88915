"""The official Python SDK under a test's control: commands on stdin, events on stdout, both one JSON object a line.

tests/support/sdk_process.py lists them. The argument is the address of the proxy. Transport is the SDK's default,
plaintext, or TLS with SDK_TLS; SDK_ACCESS_KEY and SDK_SECRET_KEY sign. It runs in an environment that holds the SDK and
nothing of ours.
"""

import asyncio
import importlib.metadata
import json
import os
import sys
import threading
import time
from collections import Counter
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType
from rocketmq.v5.client.connection.rpc_client import RpcClient

credentials = Credentials(os.environ.get("SDK_ACCESS_KEY", ""), os.environ.get("SDK_SECRET_KEY", ""))
configuration = ClientConfiguration(sys.argv[1], credentials)
tls = "SDK_TLS" in os.environ
clients: dict[str, Any] = {}
received: dict[tuple[str, str], Message] = {}
deliveries: Counter[tuple[str, str]] = Counter()
output = threading.Lock()


def emit(event, **fields):
    with output:
        print(json.dumps({"event": event, "at_ms": int(time.time() * 1000), **fields}), flush=True)


def described(name, message):
    return {
        "name": name,
        "id": message.message_id,
        "topic": message.topic,
        "body": message.body.decode(),
        "tag": message.tag or None,
        "keys": list(message.keys),
        "message_group": message.message_group or None,
        "properties": dict(message.properties),
        "attempt": message.delivery_attempt,
    }


class Listener(MessageListener):  # type: ignore[misc] # the SDK is not where types are checked
    """Fails as often as the property `failures` of a message says."""

    def __init__(self, name):
        self.name = name

    def consume(self, message):
        emit("message", **described(self.name, message))
        with output:
            deliveries[self.name, message.message_id] += 1
            failed = deliveries[self.name, message.message_id] <= int(message.properties.get("failures", "0"))
        return ConsumeResult.FAILURE if failed else ConsumeResult.SUCCESS


class Checker(TransactionChecker):  # type: ignore[misc]
    """Resolves a transaction as the property `check` of its message says."""

    def __init__(self, name):
        self.name = name

    def check(self, message):
        emit("check", **described(self.name, message))
        resolution = message.properties.get("check", "TRANSACTION_RESOLUTION_UNSPECIFIED")
        return TransactionResolution.Value(resolution)


def subscription(command):
    if "sql" in command:
        return {command["topic"]: FilterExpression(command["sql"], FilterType.SQL)}
    return {command["topic"]: FilterExpression(command["tag"])}


def producer(command):
    begin(command, Producer(configuration, (command["topic"],), Checker(command["name"]), tls_enable=tls))


def push(command):
    begin(
        command,
        PushConsumer(configuration, command["group"], Listener(command["name"]), subscription(command), tls_enable=tls),
    )


def simple(command):
    await_s = command["await_ms"] // 1000
    begin(command, SimpleConsumer(configuration, command["group"], subscription(command), await_s, tls_enable=tls))


def begin(command, client):
    # The SDK does so in the thread that opens its connection, which may be one of its own; a start in another fails.
    asyncio.set_event_loop(RpcClient.get_channel_io_loop())
    client.startup()
    clients[command["name"]] = client


def send(command):
    message = Message()
    message.topic = command["topic"]
    message.body = command["body"].encode()
    if "tag" in command:
        message.tag = command["tag"]
    if "keys" in command:
        message.keys = command["keys"][0]
    if "message_group" in command:
        message.message_group = command["message_group"]
    if "delay_ms" in command:
        message.delivery_timestamp = int(time.time()) + command["delay_ms"] // 1000
    for key, value in command.get("properties", {}).items():
        message.add_property(key, value)
    client = clients[command["name"]]
    transaction = client.begin_transaction() if "transaction" in command else None
    receipt = client.send(message, transaction)
    if transaction and command["transaction"] == "COMMIT":
        transaction.commit()
    elif transaction and command["transaction"] == "ROLLBACK":
        transaction.rollback()
    return {"id": receipt.message_id, "handle": receipt.recall_handle}


def recall(command):
    return {"id": clients[command["name"]].recall_message(command["topic"], command["handle"])}


def receive(command):
    messages = clients[command["name"]].receive(command["max"], command["invisible_ms"] // 1000) or []
    for message in messages:
        received[command["name"], message.message_id] = message
        emit("message", **described(command["name"], message))
    return {"count": len(messages)}


def ack(command):
    clients[command["name"]].ack(received[command["name"], command["id"]])


def change(command):
    message = received[command["name"], command["id"]]
    clients[command["name"]].change_invisible_duration(message, command["invisible_ms"] // 1000)


def stop(command):
    clients.pop(command["name"]).shutdown()


VERBS = {verb.__name__: verb for verb in (producer, push, simple, send, recall, receive, ack, change, stop)}


def answer(command):
    try:
        emit("done", n=command["n"], **(VERBS[command["do"]](command) or {}))
    except Exception as failure:  # noqa: BLE001 - whatever the SDK raises goes to the test
        emit("failed", n=command["n"], error=f"{type(failure).__name__}: {failure}")


emit("ready", version=importlib.metadata.version("rocketmq-python-client"))
for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
