"""Page of mqstore."""

from collections.abc import Callable, Iterator
from inspect import getdoc

from docs._ext.mqadmin import Option, function_options
from rocketbroker.app.mqstore.cli import COMMANDS, DUMP_COMMANDS, load, load_dump
from rocketbroker.codec.storefile.audit_rules import AuditRule

_INTRODUCTION = """\
# mqstore

For operators of a stopped store: check its files, show their contents and repair them. `mqstore` reads stores of Apache
RocketMQ as well as those of this broker.

- `check` and `dump` never write and take no lock. They can read the store of a running broker, but data written
  meanwhile may look wrong.
- File sizes are read from the files. Give the broker's settings file with `-c` if parts of the store are in separate
  directories (such as `storePathCommitLog`), if `messageDelayLevel` was changed, or if the last entry of an index file
  with a changed size is damaged.
- `--json` prints JSON with stable keys. Its times are ms since 1970.
- The exit code is 0 if no errors were found, 1 if errors were found, and 3 if `repair` or `truncate` needs `--yes`. It
  is 2 if the store does not exist or cannot be read, or if the usage is wrong; the reason is one line on stderr.
  Warnings do not change the exit code.
"""

_CHECK = """\
Reads the whole store once and compares its parts:

- each record of the CommitLog with its place, its lengths and its checksum
- each message with its ConsumeQueue entry and its index keys; in a topic with `queue.type=BatchCQ`, each record with
  its entry in `batchconsumequeue/`
- each entry with the record that it points to
- each consumer offset with the end of its queue

[Rules](#rules) lists the possible findings. After an unclean stop (the `abort` file exists) some errors become
warnings, because the next start repairs them: damage at the end of the log, entries that point beyond that end, and
missing entries and keys of messages stored after the checkpoint.

Messages of deleted topics, data before the first file of the log and keys before the first index file are not errors. A
store without index files counts as one with `messageIndexEnable=false`. LMQs are not checked."""

_REPAIR = """\
Checks the store and prints a plan. With `--yes` it carries it out:

1. Take the store's lock. A store that is open in a broker is not touched (exit code 2).
2. Rename `consumequeue` and `batchconsumequeue`, `index` or `checkpoint` to `<name>.damaged` where the check found
   errors in them.
3. Open and stop the store as a broker does. Recovery truncates a torn end of the CommitLog, rebuilds missing entries,
   and sets consumer offsets back to the end of their queue.
4. Print the report of the recovery and check the store again.

Files of the CommitLog are never set aside: a damaged record stays, and consumers do not get it. If there are no other
errors, the command says so and changes nothing. Queues are rebuilt from the whole CommitLog. This includes topics that
Apache RocketMQ deleted while the log still has their messages.

Versions before 0.1.0 gave all messages of some batches the first message's tags: such a message did not reach those
who subscribe to its tag. The check reports `queue-entry-mismatch` and `index-entry-mismatch`, and the repair gives each
entry and key the tags of its message. A group gets messages that it was not given before from its offset on only; set
its offset back with `mqadmin resetOffsetByTime` for older ones."""

# Notes beyond the options, and an example.
_NOTES = {
    "check": (_CHECK, "mqstore check ~/store --limit 5"),
    "repair": (_REPAIR, "mqstore repair ~/store --yes"),
    "truncate": (
        """\
For a slave that stopped because its master does not have its last messages: the slave's log names the offset
([Clusters](../operations/clusters.md#when-a-slave-stops)). The messages from there on are lost, so copy the store
first. Consumer offsets beyond the end of their queue are set back to it. The progress of delayed messages, timer
messages and transactions begins again, as it may count what was dropped: the slave takes over that of its
master. A broker that starts as a master on this store delivers all delayed and timer messages that it still has
again.""",
        "mqstore truncate ~/store 123456789 --yes",
    ),
    "dump log": (
        """\
Prints one line for each record. `damagedBytes` marks bytes that are not a record. `bodyCRC` is `right` if the body
matches its checksum.""",
        "mqstore dump log ~/store -t TopicTest --limit 10 --json",
    ),
    "dump queue": (
        """\
`tagsCode` is the hash of the tags; in SCHEDULE_TOPIC_XXXX it is the time of delivery in ms. In a topic with
`queue.type=BatchCQ` a row is one record: `queueOffset` is the offset of its first message, `messages` their number.""",
        "mqstore dump queue ~/store -t TopicTest -q 0 --from 1000",
    ),
    "dump index": (
        """\
A key maps to a slot, whose chain is shown from its newest entry on. `isOfKey` is false for entries of other keys in the
same slot.""",
        "mqstore dump index ~/store -t TopicTest -k order-7",
    ),
    "dump checkpoint": (
        """\
Messages stored up to three seconds before these times are on disk.""",
        "mqstore dump checkpoint ~/store",
    ),
    "dump config": (
        """\
RocketMQ writes integer keys without quotes, which few programs can read; here the keys are quoted.""",
        "mqstore dump config ~/store --file consumerOffset.json",
    ),
}


def render() -> str:
    """Return the whole page."""
    parts = [_INTRODUCTION]
    for name, command in all_commands():
        parts += _section(name, command)
    return "\n".join([*parts, *_rules()])


def all_commands() -> Iterator[tuple[str, Callable[..., None]]]:
    """Yield the sub-commands by name, in the order of the page."""
    yield from ((name, load(name)) for name in COMMANDS)
    yield from ((f"dump {name}", load_dump(name)) for name in DUMP_COMMANDS)


def _section(name: str, command: Callable[..., None]) -> Iterator[str]:
    note, example = _NOTES[name]
    yield f"## {name}\n\n{getdoc(command)}\n\n{note}\n"
    yield f"```console\n$ {example}\n```\n"
    yield "| option | value | default | meaning |\n|---|---|---|---|"
    for option in function_options(command):
        yield f"| {_names(option)} | {option.value} | {option.default} | {option.help} |"
    yield ""


def _names(option: Option) -> str:
    names = [each for each in option.names if str(each).startswith("-")]
    return ", ".join(f"`{each}`" for each in names) or option.value


def _rules() -> Iterator[str]:
    yield "## Rules\n\n`mqstore check` and [`mqanalytics audit`](jobs.md#audit) report violations of these rules.\n"
    yield "| rule | severity | meaning | found by |\n|---|---|---|---|"
    for rule in AuditRule:
        tools = "both" if len(rule.tools) > 1 else f"`{rule.tools[0]}`"
        yield f"| `{rule.value}` | {rule.severity.value} | {rule.meaning} | {tools} |"
    yield ""
