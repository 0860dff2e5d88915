"""Page of mqadmin."""

import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, NamedTuple, get_args

from typer.models import ArgumentInfo

from docs._ext.mqadmin_access import NOTES as ACCESS_NOTES
from docs._ext.mqadmin_index import all_sub_commands
from docs._ext.mqadmin_messages import NOTES

SUB_COMMANDS = all_sub_commands()

_INTRODUCTION = """\
# mqadmin

For operators: show and change clusters, topics, groups and messages. `mqadmin SUB_COMMAND [OPTION]...` has the option
letters and columns of RocketMQ's own `mqadmin`, and works with any RocketMQ name server and broker.

- `-n HOST:PORT` names the name servers, several joined by `;`. Without it, `mqadmin --cluster NAME SUB_COMMAND` takes
  them from a [file of clusters](#named-clusters). Then come the variable `NAMESRV_ADDR` and the default of the file.
- `--json` prints one JSON value with stable keys instead of text and tables. Its times are ms since 1970.
- `--watch SECONDS` repeats a sub-command that only reads, and redraws the terminal. Ctrl-C ends it.
- A sub-command that deletes asks for confirmation if its input is a terminal, unless `--yes` is given. Without a
  terminal it does not ask, so scripts for RocketMQ's tool need no change.
- `--dry-run` asks the servers what it must know, lists the requests that would change something, and sends none.
- `mqadmin --install-completion` teaches bash, zsh or fish to complete sub-commands, options and names of clusters.
- The exit code is 0 on success, 1 on failure (the reason is on stderr) and 2 for wrong usage. It is 130 after Ctrl-C,
  and 141 if nobody reads the output any more, as in `mqadmin topicList | head -1`.
- To use it from another machine, add its address to `adminWhiteList` of name servers and brokers
  ([Security](../operations/security.md)).
- Values that a broker does not send are dashes in tables and missing in JSON.
- `mqadmin help SUB_COMMAND` and `mqadmin SUB_COMMAND -h` show the options below.

## Named clusters

`~/.config/rocketbroker/mqadmin.toml` gives names to clusters. The file is below `$XDG_CONFIG_HOME` if that is set, and
`--config FILE` reads another one:

```toml
default = "dev"

[clusters.dev]
namesrvAddr = "127.0.0.1:9876"

[clusters.prod]
namesrvAddr = "10.0.0.1:9876;10.0.0.2:9876"
brokers = ["broker-a", "broker-b"]   # doctor reports those that no name server knows
```

`mqadmin --cluster prod topicList` then asks the second one, and `mqadmin topicList` the first. `NAMESRV_ADDR` comes
before the default of the file, but not before that of a file that `--config` names.

## Users and signatures

Servers with access control take requests of a known user only. mqadmin signs its requests if it finds a user and the
secret in one of these places, the first that has them:

1. `accessKey`, and `secretKey` or `secretKeyFile`, of the named cluster;
2. the variables `ROCKETMQ_ACCESS_KEY` and `ROCKETMQ_SECRET_KEY`;
3. `$ROCKETMQ_HOME/conf/tools.yml`, as RocketMQ's tool: `accessKey: NAME` and `secretKey: SECRET`.

No option takes the secret. A file of clusters with a `secretKey`, and a `secretKeyFile`, are refused if other users can
read them; for `tools.yml` a line on stderr warns.

```toml
[clusters.prod]
namesrvAddr = "10.0.0.1:9876;10.0.0.2:9876"
accessKey = "admin"
secretKeyFile = "prod.secret"   # its first line; paths begin at the folder of this file
bindSignatures = true           # or ROCKETMQ_BIND_SIGNATURES=true: bound to connections, for servers that demand it
tls = true
caFile = "ca.pem"               # issuers of the servers' certificates; without it those of the system
certFile = "admin.pem"          # only for servers that ask for a certificate
keyFile = "admin-key.pem"
```

`mqadmin --tls SUB_COMMAND` uses TLS without such a file, and `--ca-file FILE` also names the issuers to trust. Without
them and without `tls` in the cluster, `tls.enable` and the other `tls.` settings of outgoing connections count, from
`-Dtls.enable=true` in `JAVA_OPT` or the file `tls.config.file`, as for the servers of this machine.
"""

_ON_BROKERS = """\

Without `-b` and `-c` the command runs on all brokers of all clusters. Brokers that fail are named on stderr and do not
stop the command. In JSON: `brokers`, the addresses of those that succeeded."""

# Notes beyond the options, and an example.
_NOTES = {
    "clusterList": (
        """\
Asks each broker for its runtime statistics. A broker that does not answer is listed with dashes and makes the exit
code 1. In JSON: `brokers`, each with `clusterName`, `brokerName`, `brokerId`, `addr`, `runtime` (all statistics, as
text) and `error`.""",
        "mqadmin clusterList -n 127.0.0.1:9876",
    ),
    "doctor": (
        """\
Not a command of RocketMQ. Asks all name servers and brokers, and the clients of all groups, and names each fault with
its evidence and a remedy: an advertised address that does not answer, a name server that does not, brokers that are not
registered everywhere or not any more, topics without a route (with the cause), clients of a group that subscribe
differently or use different name servers, queues that nobody consumes, a disk near its watermark, stores that take no
message, slaves that are behind, clocks that differ, files or mappings near their limit, certificates that expire or
name another host, and clients in plain text at brokers with TLS. It also reports `brokers` that the file of clusters
lists for a cluster and no name server has. The exit code is 1 if it finds a fault. Works with
servers of Apache RocketMQ, by what they report. [Find out why](../operations/find-out-why.md) shows it at work. In
JSON: `findings` with `check`, `severity`, `subject`, `evidence` and `remedy`, and `unknown`, a line for each server or
client that did not say what it was asked.""",
        "mqadmin doctor -n 127.0.0.1:9876",
    ),
    "why": (
        """\
Not a command of RocketMQ. Follows one message to one group and says in plain sentences if and where it is stored, if
the group's filter selects it, how far the group has come, which client consumes the queue, how often it was retried, if
it is in the dead-letter queue, and what its traces say. The last line says what to do. Without `--key`, `--id` and
`--offset` it takes the next message of the queue that is furthest behind. In JSON: `group`, `topic`, `outcome`,
`sentences`, `advice`, `msgId`, `brokerName`, `queueId` and `queueOffset`. The outcomes are in
[Find out why](../operations/find-out-why.md).""",
        "mqadmin why CG_Test TopicTest -n 127.0.0.1:9876 --key order-1",
    ),
    "topicList": (
        """\
In JSON: `topics`, a list of names; with `-c` a list of `clusterName`, `topic` and `consumerGroups`.""",
        "mqadmin topicList -n 127.0.0.1:9876 -c",
    ),
    "topicRoute": (
        """\
Without `-l` the route is printed as by RocketMQ's tool, with broker ids without quotes. In JSON: `brokerDatas`,
`queueDatas` and the other fields of the route, all in standard JSON.""",
        "mqadmin topicRoute -n 127.0.0.1:9876 -t TopicTest -l",
    ),
    "updateTopic": (
        """\
Give either `-b` or `-c`. An ordered topic (`-o true`) is also added to the ORDER_TOPIC_CONFIG of the name servers. In
JSON: `brokers`, `orderConf` and `topicConfig`.""",
        "mqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t TopicTest -r 4 -w 4",
    ),
    "deleteTopic": (
        """\
Messages of the topic can no longer be read. A topic that neither a name server nor a master of the cluster knows is an
error (exit code 1); Apache's tool reports success. In JSON: `topic`, `clusterName` and `brokers`.""",
        "mqadmin deleteTopic -n 127.0.0.1:9876 -c DefaultCluster -t TopicTest",
    ),
    "topicStatus": (
        """\
Prints one row for each queue, including empty ones. In JSON: `topic`, `queues` with `brokerName`, `queueId`,
`minOffset`, `maxOffset` and `lastUpdateTimestamp`, `topicPutTps`, `silentBrokers` and `failedBrokers`. A broker that
does not answer, or answers with an error, has a row of dashes and is named on stderr: the rows of the others are
printed, and the exit code is 1.""",
        "mqadmin topicStatus -n 127.0.0.1:9876 -t TopicTest",
    ),
    "brokerStatus": (
        """\
Prints what the broker tells about itself, one figure a line, sorted by name. A broker of RocketMQ 4.9 tells fewer. With
`-c` each line begins with the address; a master that does not answer is named on stderr and makes the exit code 1. In
JSON: `brokers` with `addr`, `runtime` (all figures, as text) and `error`.""",
        "mqadmin brokerStatus -n 127.0.0.1:9876 -b 127.0.0.1:10911",
    ),
    "updateKvConfig": (
        """\
If a name server fails, those that had the value before are named; repeat the command then. In JSON: `namespace`, `key`
and `value`.""",
        "mqadmin updateKvConfig -n 127.0.0.1:9876 -s MY_SPACE -k region -v east",
    ),
    "deleteKvConfig": (
        """\
A missing value is no error. In JSON: `namespace` and `key`.""",
        "mqadmin deleteKvConfig -n 127.0.0.1:9876 -s MY_SPACE -k region",
    ),
    "wipeWritePerm": (
        """\
Use it before a broker stops: producers move to the other brokers within 30 s, and consumers read on. An unknown
broker is an error; Apache's tool reports 0 topics. In JSON: `brokerName` and `topicsByNameServer`, the number of
changed topics by address.""",
        "mqadmin wipeWritePerm -n 127.0.0.1:9876 -b broker-a",
    ),
    "addWritePerm": (
        """\
JSON is as for `wipeWritePerm`.""",
        "mqadmin addWritePerm -n 127.0.0.1:9876 -b broker-a",
    ),
    "getBrokerConfig": (
        """\
Give either `-b` or `-c`. Settings are sorted by name. A broker that does not answer is named on stderr. In JSON:
`brokers` with `addr`, `settings`, `masterAddr` (of a slave) and `error`.""",
        "mqadmin getBrokerConfig -n 127.0.0.1:9876 -b 127.0.0.1:10911",
    ),
    "updateBrokerConfig": (
        """\
Give either `-b` or `-c`; `-a true` adds the slaves of the cluster. Prints the value before and after, as the broker
tells it, since Apache's broker takes a wrong value for another one in silence. A name that the broker does not have is
an error, with the nearest name that it has. The broker writes the change to its settings file. In JSON: `key`, `value`
and `brokers` with `addr`, `before`, `after` and `error`.""",
        "mqadmin updateBrokerConfig -n 127.0.0.1:9876 -c DefaultCluster -k fileReservedTime -v 48",
    ),
    "getNamesrvConfig": (
        """\
A name server that does not answer is named on stderr and makes the exit code 1. In JSON: `nameServers` with `addr`,
`settings` and `error`.""",
        "mqadmin getNamesrvConfig -n 127.0.0.1:9876",
    ),
    "updateNamesrvConfig": (
        """\
Changes the setting of all name servers, and prints its value before and after. In JSON: `key`, `value` and
`nameServers` with `addr`, `before` and `after`.""",
        "mqadmin updateNamesrvConfig -n 127.0.0.1:9876 -k enableTopicList -v true",
    ),
    "updateTopicList": (
        """\
Give either `-b` or `-c`. The file has a JSON list of topics with RocketMQ's fields: `topicName`, `readQueueNums`,
`writeQueueNums`, `perm`, `topicFilterType`, `topicSysFlag`, `order` and `attributes`. Fields that are missing have
RocketMQ's defaults, unknown ones are an error. In JSON: `brokers`, the addresses of those that succeeded, and
`topics`.""",
        "mqadmin updateTopicList -n 127.0.0.1:9876 -c DefaultCluster -f topics.json",
    ),
    "updateTopicPerm": (
        """\
Give either `-b` or `-c`. Queues, order and attributes stay as each broker has them; Apache's tool writes those of the
first broker of the route to all. In JSON: `topic` and `brokers` with `addr`, `before` and `after`.""",
        "mqadmin updateTopicPerm -n 127.0.0.1:9876 -c DefaultCluster -t TopicTest -p 4",
    ),
    "updateOrderConf": (
        """\
`-m put` replaces the whole order configuration. In JSON: `topic`, `method` and `orderConf`.""",
        "mqadmin updateOrderConf -n 127.0.0.1:9876 -t TopicTest -m put -v 'broker-a:4;broker-b:4'",
    ),
    "topicClusterList": (
        """\
In JSON: `topic` and `clusters`.""",
        "mqadmin topicClusterList -n 127.0.0.1:9876 -t TopicTest",
    ),
    "allocateMQ": (
        """\
Shares the queues as consumers do that pull and have the default strategy (AllocateMessageQueueAveragely). Prints one
line of JSON, as RocketMQ's tool does: `result`, with the queues by address.""",
        "mqadmin allocateMQ -n 127.0.0.1:9876 -t TopicTest -i 192.0.2.1,192.0.2.2",
    ),
    "brokerConsumeStats": (
        """\
Prints one row for each queue that a group has an offset of, if something was stored there. In JSON: `brokerAddr`,
`queues` with `topic`, `group`, `brokerName`, `queueId`, `brokerOffset`, `consumerOffset`, `diff` and `lastTimestamp`,
and `diffTotal`.""",
        "mqadmin brokerConsumeStats -n 127.0.0.1:9876 -b 127.0.0.1:10911 -l 1000",
    ),
    "statsAll": (
        """\
Prints one row for each topic and group, without retry and dead-letter topics. Rates are messages a second over the last
minute; the sums are of the last 24 hours, or of the last hour or minute until the broker has sampled as long. In JSON:
`topics` with `topic`, `consumerGroup`, `accumulation`, `inTps`, `outTps`, `inMsg24Hour` and `outMsg24Hour`; fields of
the group are null for a topic without groups.""",
        "mqadmin statsAll -n 127.0.0.1:9876 -a",
    ),
    "sendMsgStatus": (
        """\
Sends to the topic that each broker has under its own name. A send before the first is not shown: it fetches the route
and connects. The topic must exist; Apache's tool creates one for a misspelt name. In JSON: `brokerName` and `sends`
with `rt` (ms), `sendStatus`, `msgId`, `offsetMsgId`, `brokerName`, `queueId` and `queueOffset`.""",
        "mqadmin sendMsgStatus -n 127.0.0.1:9876 -b broker-a -c 10",
    ),
    "clusterRT": (
        """\
Sends to the topic that each broker has under its own name, and prints the mean time in ms without the first send. It
runs once; with `-i` it repeats, as Apache's tool does every 10 s by itself. A broker with failed sends makes the exit
code 1. In JSON: `machineRoom` and `brokers` with `clusterName`, `brokerName`, `rt`, `successCount`, `failCount` and
`error`.""",
        "mqadmin clusterRT -n 127.0.0.1:9876 -a 100",
    ),
    "exportMetadata": (
        """\
Give either `-b` or `-c`. Writes `metadata.json`, with `-t` `topic.json` and with `-g` `subscriptionGroup.json`, each
with the time. The numbers of queues are added up over the masters of the cluster. In JSON: `file` and `content`.""",
        "mqadmin exportMetadata -n 127.0.0.1:9876 -c DefaultCluster -f exported",
    ),
    "exportConfigs": (
        """\
Writes `configs.json` with the settings that matter when a cluster is moved. In JSON: `file` and `content`.""",
        "mqadmin exportConfigs -n 127.0.0.1:9876 -c DefaultCluster -f exported",
    ),
    "exportMetrics": (
        """\
Writes `metrics.json`. A figure that a broker does not tell is 0 or missing. In JSON: `file` and `content`.""",
        "mqadmin exportMetrics -n 127.0.0.1:9876 -c DefaultCluster -f exported",
    ),
    "consumerProgress": (
        """\
Without `-g` there is one row for each group; with `-c`, which Apache's tool then ignores, one for each group of that
cluster, with its progress there. In JSON: `groups` with `group`, `count`, `version`, `type`, `model`, `tps`,
`diffTotal`, `silentBrokers` and `failedBrokers`; with `-g`: `group`, `queues`, `consumeTps`, `diffTotal`,
`inflightTotal`, `silentBrokers` and `failedBrokers`. A group with clients has a row for each queue that they subscribe
to; one without a committed offset counts from 0. A group that exists has no rows before its first consumer comes, and a
line says so if all brokers answer. A broker that does not answer (`silentBrokers`), or answers with an error
(`failedBrokers`), has a row of dashes and its `addr` and `error` on stderr: the totals lack its queues, and the exit
code is 1.""",
        "mqadmin consumerProgress -n 127.0.0.1:9876 -g CG_Test",
    ),
    "popStatus": (
        """\
Not a command of RocketMQ. A row for each queue that the group pops, of a topic and of its retry topic: messages that
wait to be popped, those in flight, and when the first of them return unless they are acknowledged. A broker of Apache
RocketMQ does not tell, and has no rows. Of an ordered batch those without an acknowledgement are in flight, until the
queue can be popped again. A group that sends no heartbeats is found by `-t`. In JSON: `group` and `queues` with
`topic`, `brokerName`, `queueId`, `waiting`, `inFlight` and `nextReturn`.""",
        "mqadmin popStatus -n 127.0.0.1:9876 -g CG_Test",
    ),
    "consumerStatus": (
        """\
Asks each client for its subscriptions and names clients that do not answer on stderr. If the clients of a group
subscribe differently, each gets only a part of its messages; the last lines warn about this and show the difference
that the broker found. RocketMQ's tool writes the answers to files and compares only clients that have run for two
minutes. In JSON: `group`,
`clients` with `clientId`, `clientAddr`, `version` and `subscriptions` by topic, `same` and `conflict`.""",
        "mqadmin consumerStatus -n 127.0.0.1:9876 -g CG_Test",
    ),
    "setConsumeMode": (
        """\
Give either `-b` or `-c`. Clients that let the broker assign their queues learn of the mode within 20 s. In JSON:
`brokers`, the addresses of those that succeeded; the others are named on stderr.""",
        "mqadmin setConsumeMode -n 127.0.0.1:9876 -c DefaultCluster -t TopicTest -g CG_Test -m POP -q 2",
    ),
    "updateSubGroup": (
        """\
Give either `-b` or `-c`. All settings of the group are written: those without an option get the default shown here. In
JSON: `brokers`, the addresses of those that succeeded, and `subscriptionGroupConfig`; others are named on stderr.""",
        "mqadmin updateSubGroup -n 127.0.0.1:9876 -c DefaultCluster -g CG_Test -o true",
    ),
    "getConsumerStatus": (
        """\
In JSON: `group`, `topic` and `clients`. Each client has `clientId` and `queues` with `brokerName`, `queueId` and
`offset`.""",
        "mqadmin getConsumerStatus -n 127.0.0.1:9876 -g CG_Test -t TopicTest",
    ),
    "resetOffsetByTime": (
        """\
Running consumers move too. A time without a zone is local. With `-b`, the name or address of a
broker, and `-q` only one queue moves; `-o` then gives an offset instead of a time. In JSON: `group`, `topic` and
`queues` with `brokerName`, `queueId` and `offset`.""",
        "mqadmin resetOffsetByTime -n 127.0.0.1:9876 -g CG_Test -t TopicTest -s 2026-11-21#09:59:24:121",
    ),
    "skipAccumulatedMessage": (
        """\
The group skips all messages that it has not consumed. JSON is as for `resetOffsetByTime`.""",
        "mqadmin skipAccumulatedMessage -n 127.0.0.1:9876 -g CG_Test -t TopicTest",
    ),
    "cloneGroupOffset": (
        """\
Group `-d` continues at the offsets of group `-s`, and so do its running consumers. With `-o false` nothing is copied
while `-s` has clients that do not subscribe to the topic. In JSON: `srcGroup`, `destGroup` and `topic`.""",
        "mqadmin cloneGroupOffset -n 127.0.0.1:9876 -s CG_Test -d CG_New -t TopicTest",
    ),
    "queryMsgById": (
        """\
Accepts the id given by the broker (offset message id) or by the producer (unique id), and shows which groups have
consumed the message. Unlike RocketMQ's tool it prints the body and writes no file. In JSON: `messages`,
each with its fields, `properties`, `body` in base64 and `tracks`.""",
        "mqadmin queryMsgById -n 127.0.0.1:9876 -t TopicTest -i 7F00000100002A9F0000000000000000",
    ),
    "haStatus": (
        """\
A master shows each connected slave, how far it is behind, and whether it is in sync (`haMaxGapNotInSync`). A slave
shows its master, how far it has its log, and in parentheses the reason why it does not follow it. Without `-b` and `-c`
all brokers of all clusters are asked; RocketMQ's tool asks the masters of a cluster. In JSON: `brokers` with `addr`,
`status` and `error`; `status` has the fields of RocketMQ's HARuntimeInfo.""",
        "mqadmin haStatus -n 127.0.0.1:9876 -b 127.0.0.1:10911",
    ),
    "cleanExpiredCQ": (
        f"""\
The broker also removes the empty queues of deleted topics; RocketMQ's broker removes empty queues of existing topics
too. The broker answers once everything is removed. After 5 s without an answer the command fails, but the broker
continues.
{_ON_BROKERS}""",
        "mqadmin cleanExpiredCQ -n 127.0.0.1:9876 -b 127.0.0.1:10911",
    ),
    "cleanUnusedTopic": (
        f"""\
Consumer offsets in these topics are removed too.
{_ON_BROKERS}""",
        "mqadmin cleanUnusedTopic -n 127.0.0.1:9876 -c DefaultCluster",
    ),
    "deleteExpiredCommitLog": (
        f"""\
Files last changed more than `fileReservedTime` ago are removed regardless of `deleteWhen`. The broker answers before it
removes them, and logs the name of each.
{_ON_BROKERS}""",
        "mqadmin deleteExpiredCommitLog -n 127.0.0.1:9876 -c DefaultCluster",
    ),
    "top": (
        """\
Not a command of RocketMQ; works with its brokers too, by what they report. Three lists: brokers, groups and topics. On
a terminal the screen is drawn again at each look and each key. Figures that should have been replaced by now show their
age, and that an answer is late:

| key | does |
|---|---|
| `1`, `2`, `3` | show brokers, groups or topics |
| up, down, page up, page down, home, end, `j`, `k` | mark a row, or scroll details |
| enter | open the marked row: all that a broker reports; clients and queues of a group; queues of a topic |
| escape | back to the list, and to all names |
| `s`, `r` | sort by the next column; turn the order round |
| `/` | list the names with the text that is typed |
| space | keep the figures, or go on |
| `q`, Ctrl-C | quit |

Rates span the last 10 s. Brokers are asked at each look; of more than 100 groups, or topics, 100 are asked at each look
in turn. On a narrow terminal columns are left out, the last ones first; the name stays. If a name server or broker
stops answering, the screen says so and keeps the last figures. Without a terminal, with `--once` or `--json`, it prints
all figures once, with the rates that the brokers report. In JSON: `time`, `brokers`, `groups`, `topics`, and how many
groups and topics were asked.""",
        "mqadmin top -n 127.0.0.1:9876 --once",
    ),
    "bench": (
        """\
Not a command of RocketMQ; works with its brokers too. Each load runs for `-d` seconds or `-m` messages:

- `sync`: each of `-w` tasks waits for an answer before it sends the next message.
- `async`: `-f` sends are open at a time.
- `batch`: as `sync`, with `-b` messages in a request.
- `consume`: pulls of all queues, of what this run has sent; without another load, of what the topic has.
- `e2e`: `-r` sends a second, however long each takes; the time from a send to its delivery by a held pull.

The topic must exist, or be created by `--create`; `--clean` deletes it again if this run created it. Otherwise the
messages stay until they expire. Pulls are those of the group TOOLS_CONSUMER: no group is created and no offset
committed. Bodies are random and not compressed. All loads run in one process: where `Client CPU` is near 100 %, the
servers may do more. Ctrl-C ends the running load and prints the figures so far (exit code 1); failed sends make the
exit code 1, too. In JSON: `topic`, `size`, `created`, `removed`, `interrupted` and `loads`, each with `load`,
`messages`, `failed`, `seconds`, `rate`, `mibPerSecond`, `latencyMs`, `clientBusy` and `error`.""",
        "mqadmin bench -n 127.0.0.1:9876 -t Bench --create --clean -d 2",
    ),
    "grafana": (
        """\
Not a command of RocketMQ. It asks no server. Import the file in Grafana (Dashboards, New, Import) and choose a
Prometheus that reads the brokers and name servers. [Monitor](../operations/monitor.md) has a picture of the board.""",
        "mqadmin grafana > board.json",
    ),
    "alerts": (
        """\
Not a command of RocketMQ. It asks no server. Name the file under `rule_files` in `prometheus.yml`;
`promtool check rules rules.yml` checks it.""",
        "mqadmin alerts --lagSeconds 60 > rules.yml",
    ),
}


class Option(NamedTuple):
    """One option of a sub-command as documented."""

    names: tuple[str, ...]
    value: str
    default: str
    help: str


def options_of(name: str) -> list[Option]:
    """Return the options of a sub-command, read from its annotations for typer."""
    return function_options(SUB_COMMANDS[name].function)


def function_options(command: Callable[..., None]) -> list[Option]:
    """Return the options of the function of a sub-command."""
    return [_option(parameter) for parameter in inspect.signature(command).parameters.values()]


def _option(parameter: inspect.Parameter) -> Option:
    kind, info = get_args(parameter.annotation)
    is_flag = kind is bool
    value = "" if is_flag else info.metavar or _value(kind)
    empty = parameter.default in {None, ""} or is_flag
    default = "required" if parameter.default is inspect.Parameter.empty else "" if empty else f"`{parameter.default}`"
    if isinstance(info, ArgumentInfo):
        return Option((), f"`{info.metavar}`", default, info.help or "")
    # typer keeps the first name of an annotated option in ``default``.
    return Option((info.default, *(info.param_decls or ())), value and f"`{value}`", default, info.help)


def _value(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(str(each.value) for each in kind)
    return "NUMBER" if kind is int or int in get_args(kind) else "TEXT"


_NOTES |= NOTES | ACCESS_NOTES


def render() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *(line for name in SUB_COMMANDS for line in _section(name))])


def _section(name: str) -> Iterator[str]:
    note, example = _NOTES[name]
    yield f"## {name}\n\n{SUB_COMMANDS[name].summary}\n\n{note}\n"
    yield f"```console\n$ {example}\n```\n"
    yield "| option | value | default | meaning |\n|---|---|---|---|"
    for option in options_of(name):
        names = ", ".join(f"`{each}`" for each in option.names) or option.value
        yield f"| {names} | {option.value} | {option.default} | {option.help} |"
    yield ""
