"""Page of mqstore."""

from collections.abc import Callable, Iterator
from inspect import getdoc

from rocketbroker.app.mqadmin.docs import Option, function_options
from rocketbroker.app.mqstore.sub_commands import COMMANDS, DUMP_COMMANDS, load, load_dump
from rocketbroker.codec.storefile.audit_rules import AuditRule

_INTRODUCTION = """\
# mqstore

For operators who have a stopped store to look into: check its files, show what they hold, have them repaired. `mqstore`
reads what Apache RocketMQ wrote as well as what this broker wrote.

- `check` and `dump` never write and take no lock. They may read beside a running broker, but then what is written
  meanwhile may look wrong.
- File sizes are found in the files. Give the broker's settings file by `-c` where parts of the store are in several
  places (`storePathCommitLog` and the like), where `messageDelayLevel` was changed, and for an index file of another
  size whose last entry is damaged.
- `--json` prints JSON with stable keys; times in it are ms since 1970.
- The exit code is 0 when no error was found, 1 when errors were found, and 3 when `repair` ran without `--yes`. It is 2
  when there is no store, the store cannot be read, or the usage is wrong; the reason is one line on stderr. Warnings do
  not count.
"""

_CHECK = """\
Reads the whole store once and compares its parts:

- each record of the CommitLog with its place, its lengths and its checksum
- each message with its ConsumeQueue entry and its index keys; in a topic with `queue.type=BatchCQ`, each record with
  its entry in `batchconsumequeue/`
- each entry with the record that it leads to
- each consumer offset with the end of its queue

[Rules](#rules) lists what may be found. After an unclean stop (the `abort` file is there) some errors are warnings,
because the next start mends them: damage at the end of the log, entries that lead behind it, and missing entries and
keys of messages that were stored after the checkpoint.

No errors are messages of deleted topics, what precedes the first file of the log, and keys from before the first index
file. A store without index files counts as one with `messageIndexEnable=false`. LMQs are not checked."""

_REPAIR = """\
Checks the store and says what would be done. With `--yes` it does it:

1. Take the store's lock. A store that a broker has open is not touched (exit code 2).
2. Rename `consumequeue` and `batchconsumequeue`, `index` or `checkpoint` to `<name>.damaged` where the check found
   errors in them.
3. Open and stop the store as a broker does. Recovery cuts a torn end of the CommitLog off, makes what is missing again,
   and sets consumer offsets back to the end of their queue.
4. Print the report of the recovery and check the store again.

Files of the CommitLog are never set aside: a damaged record stays, and consumers do not get it. Where nothing else is
wrong the command says so and changes nothing. Queues are made again from the whole CommitLog, including those of topics
that Apache RocketMQ deleted and whose messages it still holds."""

# Notes beyond the options, and an example.
_NOTES = {
    "check": (_CHECK, "mqstore check ~/store --limit 5"),
    "repair": (_REPAIR, "mqstore repair ~/store --yes"),
    "dump log": (
        """\
One line a record. `damagedBytes` marks bytes that are no record. `bodyCRC` says whether the body has its checksum.""",
        "mqstore dump log ~/store -t TopicTest --limit 10 --json",
    ),
    "dump queue": (
        """\
`tagsCode` is the hash of the tags, in SCHEDULE_TOPIC_XXXX the time of delivery in ms. In a topic with
`queue.type=BatchCQ` a row is a record: `queueOffset` is that of its first message, `messages` their number.""",
        "mqstore dump queue ~/store -t TopicTest -q 0 --from 1000",
    ),
    "dump index": (
        """\
A key leads to a slot, whose chain is shown from its newest entry on. `isOfKey` is false for entries of other keys with
the same slot.""",
        "mqstore dump index ~/store -t TopicTest -k order-7",
    ),
    "dump checkpoint": (
        """\
Messages stored up to three seconds before these times were on disk.""",
        "mqstore dump checkpoint ~/store",
    ),
    "dump config": (
        """\
RocketMQ writes integer keys without quotes, which few programs read; here they are standard JSON.""",
        "mqstore dump config ~/store --file consumerOffset.json",
    ),
}


def render() -> str:
    """The whole page."""
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
    yield "## Rules\n\n`mqstore check` and [`mqanalytics audit`](jobs.md#audit) find what breaks one of these.\n"
    yield "| rule | severity | meaning | found by |\n|---|---|---|---|"
    for rule in AuditRule:
        tools = " and ".join(f"`{tool}`" for tool in rule.tools)
        yield f"| `{rule.value}` | {rule.severity.value} | {rule.meaning} | {tools} |"
    yield ""
