"""``mqstore dump log``: the records of the CommitLog."""

import base64
from collections.abc import Iterator
from typing import Annotated

import typer

from rocketbroker.app.mqstore.log_records import log_items
from rocketbroker.app.mqstore.rows import Limit, Row, print_rows
from rocketbroker.app.mqstore.running import AsJson, ConfigFile, StoreDir, reading_a_store, store_config
from rocketbroker.audit.store_audit import log_files
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.common.config import MessageStoreConfig

_PREVIEW = 60


def command(  # noqa: PLR0913, PLR0917 - typer makes an option of each argument
    directory: StoreDir,
    config_file: ConfigFile = None,
    start: Annotated[
        int,
        typer.Option(
            "--from", min=0, metavar="OFFSET", help="Start at the first record at or after this physical offset."
        ),
    ] = 0,
    limit: Limit = 100,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Show records of this topic only.")
    ] = None,
    queue: Annotated[
        int | None, typer.Option("-q", "--queue", metavar="ID", help="Show records of this queue only.")
    ] = None,
    body: Annotated[bool, typer.Option("--body", help="Show whole bodies (base64 in JSON).")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the records of the CommitLog."""
    with reading_a_store():
        found = rows(store_config(directory, config_file), start, body=body, as_json=as_json)
        wanted = (
            row
            for row in found
            if topic in {None, row.get("topic", topic)} and queue in {None, row.get("queueId", queue)}
        )
        print_rows(wanted, as_json=as_json, limit=limit)


def rows(config: MessageStoreConfig, start: int, *, body: bool, as_json: bool) -> Iterator[Row]:
    """Yield a row for each record and for each damaged range."""
    for found in log_items(log_files(config.commit_log_dir), start):
        if isinstance(found[0], int):
            yield {"physicalOffset": found[0], "damagedBytes": found[1]}
        else:
            yield _row(found[0], found[1]) | _body(found[0].body, whole=body, as_json=as_json)


def _row(message: MessageExt, crc_is_right: bool) -> dict[str, object]:
    return {
        "physicalOffset": message.commit_log_offset,
        "size": message.store_size,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "storeTimestamp": message.store_timestamp,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host_text,
        "storeHost": message.store_host_text,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": "right" if crc_is_right else "wrong",
        "msgId": message.offset_msg_id,
        "tags": message.tags,
        "keys": message.get_property("KEYS"),
        "uniqKey": message.uniq_key,
        "properties": message.properties,
        "bodyLength": message.body_length,
    }


def _body(body: bytes, *, whole: bool, as_json: bool) -> dict[str, object]:
    if whole:
        return {"body": base64.b64encode(body).decode() if as_json else body.decode("utf-8", "replace")}
    return {"bodyPreview": body[:_PREVIEW].decode("utf-8", "replace")}
