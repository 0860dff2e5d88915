"""Notes and examples of the sub-commands about groups, clients and messages, for the page of mqadmin."""

from typing import Final

_LINES = "With `--json` one message on each line, so that a long topic needs no memory."
_SELECT = "`-s`, `--sql`, `--key`, `--from` and `--until` select messages"

NOTES: Final = {
    "updateSubGroupList": (
        """\
Give either `-b` or `-c`. The file is a JSON list; each group needs `groupName`, and a setting that is missing gets its
default. `getConsumerConfig --json` prints groups in this form. In JSON: `brokers` and `groups`.""",
        "mqadmin updateSubGroupList -n 127.0.0.1:9876 -c DefaultCluster -f groups.json",
    ),
    "deleteSubGroup": (
        """\
Give either `-b` or `-c`. With `-c` the group's retry topic and dead letters are deleted too. In JSON: `group`,
`brokers` and `topics`.""",
        "mqadmin deleteSubGroup -n 127.0.0.1:9876 -c DefaultCluster -g CG_Test -r true",
    ),
    "getConsumerConfig": (
        """\
A group that no broker has is an error (exit code 1); RocketMQ's tool prints nothing. In JSON: `group` and `brokers`
with `clusterName`, `brokerName` and `subscriptionGroupConfig`.""",
        "mqadmin getConsumerConfig -n 127.0.0.1:9876 -g CG_Test",
    ),
    "exportPopRecord": (
        """\
Needed before brokers of Apache RocketMQ that keep pop records in RocksDB are downgraded. Ours have all records in the
log, and do nothing. With `-d true` the brokers are shown only; RocketMQ's tool has this the wrong way round. In JSON:
`brokers` and `dryRun`.""",
        "mqadmin exportPopRecord -n 127.0.0.1:9876 -c DefaultCluster",
    ),
    "startMonitoring": (
        """\
Each round reports, for groups with clients, the messages that they have not consumed, subscriptions that differ, and
queues that stand still for a minute. RocketMQ's tool writes this to a log file. The delay counts from the last message
that was consumed. With `--json` each round is one line: `time`, `undone` and `notices`.""",
        "mqadmin startMonitoring -n 127.0.0.1:9876 --roundInterval 30",
    ),
    "producer": (
        "In JSON: `brokerAddr` and `producers`, each with its `group`.",
        "mqadmin producer -n 127.0.0.1:9876 -b 127.0.0.1:10911",
    ),
    "producerConnection": (
        "In JSON: `group`, `topic` and `clients` with `clientId`, `clientAddr`, `language` and `version`.",
        "mqadmin producerConnection -n 127.0.0.1:9876 -g PG_Test -t TopicTest",
    ),
    "consumerConnection": (
        """\
In JSON: `group`, `clients`, `subscriptions`, `consumeType`, `messageModel`, `consumeFromWhere` and `conflict`, which
names clients whose subscriptions differ; brokers of Apache RocketMQ do not report it.""",
        "mqadmin consumerConnection -n 127.0.0.1:9876 -g CG_Test",
    ),
    "queryMsgByKey": (
        """\
A broker answers at most `defaultQueryMaxNum` messages (32), whatever `-m` is. `-p T` and `-l` need an index in RocksDB,
which brokers of Apache RocketMQ can have. In JSON: `topic`, `key` and `messages`.""",
        "mqadmin queryMsgByKey -n 127.0.0.1:9876 -t TopicTest -k order-7",
    ),
    "queryMsgByUniqueKey": (
        "Prints the body, and writes no file. JSON is as for `queryMsgById`.",
        "mqadmin queryMsgByUniqueKey -n 127.0.0.1:9876 -t TopicTest -i 7F0000010A2B18B4AAC24EE9A3C50000",
    ),
    "queryMsgByOffset": (
        "Prints the body, and writes no file. JSON is as for `queryMsgById`.",
        "mqadmin queryMsgByOffset -n 127.0.0.1:9876 -t TopicTest -b broker-a -i 0 -o 42",
    ),
    "queryMsgTraceById": (
        """\
Needs clients that send traces, and a broker with `traceTopicEnable=true`. In JSON: `msgId` and `traces`.""",
        "mqadmin queryMsgTraceById -n 127.0.0.1:9876 -i 7F0000010A2B18B4AAC24EE9A3C50000",
    ),
    "queryCq": (
        "In JSON: the fields of RocketMQ's answer, with `topic`, `brokerAddr`, `queueId` and `index`.",
        "mqadmin queryCq -n 127.0.0.1:9876 -t TopicTest -q 0 -i 0 -c 5",
    ),
    "printMsg": (
        f"{_LINES} No group is joined and no offset committed.",
        "mqadmin printMsg -n 127.0.0.1:9876 -t TopicTest -b 2026-11-21#09:59:24:121",
    ),
    "printMsgByQueue": (
        f"{_LINES} With `-f true` the last line has `tags`, each with its `count`.",
        "mqadmin printMsgByQueue -n 127.0.0.1:9876 -t TopicTest -a broker-a -i 0 -p true -d true",
    ),
    "consumeMessage": (
        f"{_LINES} Unlike its name it consumes nothing: no group is joined and no offset committed.",
        "mqadmin consumeMessage -n 127.0.0.1:9876 -t TopicTest -b broker-a -i 0 -o 42 -c 5",
    ),
    "sendMessage": (
        "In JSON: `brokerName`, `queueId`, `sendResult`, `msgId`, `offsetMsgId` and `queueOffset`.",
        "mqadmin sendMessage -n 127.0.0.1:9876 -t TopicTest -p hello -k order-7 -c TagA",
    ),
    "checkMsgSendRT": (
        """\
The messages stay in the topic. A send that fails makes the exit code 1. In JSON: `topic`, `sends` and `avgRT` in ms,
in which the first send, which connects, does not count.""",
        "mqadmin checkMsgSendRT -n 127.0.0.1:9876 -t TopicTest -a 20",
    ),
    "tail": (
        f"""\
Not a command of RocketMQ. {_SELECT.replace("`--from` and `--until` select", "select")}; brokers apply the first two. A
line has the store time, the place of the message, its tag, its keys and its body. With `--json` each line has
`topic`, `brokerName`, `queueId`, `queueOffset`, `msgId`, `properties`, `body` and more. A broker that goes away is
waited for. See [Move and follow messages](../how-to/move-messages.md).""",
        "mqadmin tail -n 127.0.0.1:9876 TopicTest --last 10 --body json",
    ),
    "export": (
        f"""\
Not a command of RocketMQ. {_SELECT}; `--key` reads all of the time, and leaves out the others. The rows are those of
[mqanalytics export](jobs.md), with decompressed bodies. In JSON: `topics`, `to`, `format`, `messages`, and the
numbers `damaged` and `missing` of those that could not be exported. See
[Move and follow messages](../how-to/move-messages.md).""",
        "mqadmin export -n 127.0.0.1:9876 TopicTest --to topic-test.jsonl",
    ),
    "import": (
        """\
Not a command of RocketMQ. Reads what `mqadmin export` and `mqanalytics export` write: JSON lines, also gzipped, and
Parquet. In JSON: `source`, `dryRun`, `sent` by topic, `skipped` by reason, and `unsafe`: the
number sent by each status other than SEND_OK. See
[Move and follow messages](../how-to/move-messages.md).""",
        "mqadmin import -n 127.0.0.1:9876 topic-test.jsonl --to-topic TopicTest=Copy",
    ),
    "resendDlq": (
        """\
Not a command of RocketMQ. Without `--yes` the dead letters are shown only. In JSON: `group`, `dryRun`, `leftOut` by
reason, and `messages`, or the numbers `sent`, `failed` and `unknown`, and `record`, the file. With `--undo` it has the
numbers `recalled`, `held` and `delivered`. See [Move and follow messages](../how-to/move-messages.md).""",
        "mqadmin resendDlq -n 127.0.0.1:9876 CG_Test --topic TopicTest --yes",
    ),
}
