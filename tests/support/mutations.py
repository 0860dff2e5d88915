"""Faults put into the code on purpose, each with the test that must fail then.

    python -m tests.support.mutations            run all of them
    python -m tests.support.mutations WORD...    run those whose name holds one of the words

A mutation replaces one piece of text in a copy of the sources. A test that passes all the same proves less than it
says.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
# Parts of the checkout that the tests need; the copy leaves out the rest.
COPIED = ("src", "tests", "pyproject.toml", "conf")
SOURCES = "src/rocketbroker"
LIMIT_S = 900
FAILED = 1  # pytest's exit status when tests ran and some failed


class Mutation(NamedTuple):
    """A fault: in ``file`` below the sources the text ``before``, which occurs once, becomes ``after``."""

    name: str
    file: str
    before: str
    after: str
    test: str


class MutationError(Exception):
    """A mutation does not fit the code, or its test could not be run."""


DAMAGED_STORES = "tests/property/test_damaged_stores.py::test_any_damage_to_one_file"
DAMAGED_FILES = "tests/property/test_damaged_files.py"
DAMAGED_BATCHES = "tests/property/test_damaged_batches.py::test_any_damage_to_one_file"
CRASH = "tests/property/test_crash.py::test_a_crash_loses_nothing_promised"
UNKNOWN_PART = "tests/unit/store/recovery/test_unknown_part.py"
CRASH_CLOCK = "tests/property/test_crash.py::test_a_clock_set_back_loses_nothing_promised"
CRASH_ORDERED = "tests/property/test_crash.py::test_a_flush_during_a_dispatch_covers_only_entered_messages"
DISK_ERRORS = "tests/property/test_disk_errors.py::test_a_disk_that_fails_for_a_while_loses_nothing"
TABLE_CRASH = "tests/property/test_table_crash.py"
STORE = "tests/property/test_store.py"
BATCH_QUEUES = "tests/property/test_batch_queues.py"
REPLICA_CRASH = "tests/property/test_replica_crash.py"
REPLICA_LOG = "tests/unit/store/test_replica_log.py"
REPLICATION = "tests/integration/test_replication.py::test_no_message_that_both_have_is_lost_by_the_kill_of_either"
DELAY_CRASH = "tests/property/test_delay_crash.py"
TRANSACTION_CRASH = "tests/property/test_transaction_crash.py"
CONNECTION = "tests/property/test_connection.py"
OUTGOING_REQUESTS = "tests/unit/transport/test_outgoing_requests.py"
DECODERS = "tests/property/test_fuzz_decoders.py::test_any_input_is_accepted_or_rejected"
REQUESTS = "tests/property/test_fuzz_requests.py::test_requests_with_damage_are_answered"
RUNS = "tests/property/test_send_runs.py::test_one_special_send_among_others_is_handled_as_if_alone"
STREAMS = "tests/property/test_fuzz_connection.py"
JAVA_KILL = "tests/interop/test_java_kill.py::test_a_killed_broker_keeps_acknowledged_messages"
CONSUME_SERVICE = "tests/unit/client/consumer/test_consume_message_service.py"
QUEUE_TABLE = "tests/unit/client/consumer/test_process_queue_table.py"

MUTATIONS = (
    Mutation(
        "a pull whose messages were cut before it was read is not made again",
        "store/read/message_fetcher.py",
        "        if self._queues.cuts != cuts:\n",
        "        if self._queues.cuts < cuts:\n",
        REPLICA_LOG,
    ),
    Mutation(
        "a cut does not wait for cleaning",
        "store/clean/log_truncation.py",
        "        async with self._file_changes:\n",
        "        if self._file_changes:\n",
        REPLICA_LOG,
    ),
    Mutation(
        "readers find the entries that are being cut",
        "store/clean/log_truncation.py",
        "            queue.hide_from(end)\n",
        "            pass\n",
        REPLICA_LOG,
    ),
    Mutation(
        "a cut calls messages known to be on disk that were never synced",
        "store/clean/log_truncation.py",
        "(min(known, last_ms) for known in",
        "(last_ms for known in",
        REPLICA_LOG,
    ),
    Mutation(
        "the marks of deleted topics stay after a cut",
        "store/clean/log_truncation.py",
        "        self._deleted.clamp(cut.offset)\n",
        "",
        REPLICA_LOG,
    ),
    Mutation(
        "a failed dispatch keeps what it knew of the queues",
        "store/dispatch/reput_message_service.py",
        "            self._forget_queues()\n            raise\n",
        "            raise\n",
        REPLICA_LOG,
    ),
    Mutation(
        "the index keeps the time of keys that were cut",
        "store/index/index_service.py",
        "        self._entered_timestamp = 0\n        return count\n",
        "        return count\n",
        "tests/unit/store/index/test_index_service.py",
    ),
    Mutation(
        "a log file is handed over before its size is on disk",
        "store/logfile/allocate_mapped_file_service.py",
        "            file.sync()\n",
        "",
        REPLICA_CRASH,
    ),
    Mutation(
        "ha: a report beyond what the slave got counts",
        "ha/ha_connection.py",
        "        if offset > known:\n",
        "        if offset > known + (1 << 50):\n",
        "tests/unit/ha/test_ha_service.py",
    ),
    Mutation(
        "ha: slaves that no name server knows count",
        "ha/slave_gate.py",
        "            if left[place] > 0:\n",
        "            if left[place] >= 0:\n",
        "tests/unit/ha/test_slave_gate.py",
    ),
    Mutation(
        "ha: slaves get what is not on the master's disk",
        "ha/transfer_source.py",
        "return end if self._flushed_offset is None else min(self._flushed_offset(), end)",
        "return end",
        "tests/unit/ha/test_ha_service.py",
    ),
    Mutation(
        "ha: one slave is enough, however many are needed",
        "ha/group_transfer_service.py",
        "offsets[needed - 1] if needed <= len(offsets) else -1",
        "offsets[0] if offsets else -1",
        "tests/unit/ha/test_group_transfer_service.py",
    ),
    Mutation(
        "ha: a master without a slave acknowledges",
        "ha/group_transfer_service.py",
        "if needed <= len(offsets) else -1",
        "if needed <= len(offsets) else sys.maxsize",
        REPLICATION,
    ),
    Mutation(
        "ha: a slave with other messages continues",
        "ha/history_check.py",
        "        if part.data[:size] != own:\n",
        "        if len(part.data[:size]) != len(own):\n",
        "tests/unit/ha/test_ha_client.py::TestOtherHistory",
    ),
    Mutation(
        "ha: a damaged body is stored",
        "store/commitlog/raw_records.py",
        "    return wrong_body(record)\n",
        '    return ""\n',
        "tests/unit/store/commitlog/test_raw_records.py",
    ),
    Mutation(
        "run: queue offsets are not taken",
        "store/message_appender.py",
        "            queue.next_offset = end\n",
        "            pass\n",
        STORE,
    ),
    Mutation(
        "run: a special message is stored like others",
        "codec/remoting/escaped_properties.py",
        "return None if unique_key is not None or is_special or",
        "return None if unique_key is not None or",
        RUNS,
    ),
    Mutation(
        "run: its sends are answered before they are on disk",
        "processor/support/alike_sends.py",
        "run_when_safe(answers, result, target) if target.waits",
        "run_when_safe(answers, result, target) if not target.waits",
        "tests/property/test_send_runs.py",
    ),
    Mutation(
        "run: its sends may wait for the disk in any number",
        "processor/support/broker_fast_failure.py",
        "return self.waiting + sends <= self._config.send_thread_pool_queue_capacity",
        "return True",
        "tests/property/test_send_runs.py",
    ),
    Mutation(
        "run: a late sync takes the place of each message from the answers",
        "processor/support/acknowledged_answer.py",
        "fields = answer.header if outcome.status in STORED else None",
        "fields = None",
        "tests/property/test_send_runs.py",
    ),
    Mutation(
        "run: requests that are left to be handled one by one are skipped",
        "transport/frame_reader.py",
        "            while position < end:\n",
        "            while False:\n",
        "tests/property/test_send_runs.py",
    ),
    Mutation(
        "a change to a table is answered before it is written",
        "processor/support/table_change.py",
        "return _answer_when_settled(waits, answer) if waits else answer",
        "return answer",
        TABLE_CRASH,
    ),
    Mutation(
        "a change that the disk refuses stays in memory",
        "broker/persist/config_manager.py",
        "submitted.manager.refused()",
        "pass",
        TABLE_CRASH,
    ),
    Mutation(
        "a query finds the first record whatever it is asked for",
        "store/read/message_queries.py",
        "record = self._commit_log.record(offset)",
        "record = self._commit_log.record(0)",
        DAMAGED_STORES,
    ),
    Mutation(
        "a query finds nothing",
        "store/read/message_queries.py",
        "QueryMessageResult(await self._run(self._records, offsets), *last_update)",
        "QueryMessageResult([], *last_update)",
        DAMAGED_STORES,
    ),
    Mutation(
        "messages before a clock that was set back count as indexed",
        "store/recovery/unknown_part.py",
        "            has_latest, lacking = bool(found), lacking + (found is False)\n",
        "            has_latest = True\n",
        UNKNOWN_PART,
    ),
    Mutation(
        "an index file takes messages from after a clock that was set back",
        "store/index/index_file.py",
        "        return int(is_back.argmax()) if is_back.any() else len(times)\n",
        "        return len(times)\n",
        "tests/unit/store/index/test_index_service.py",
    ),
    Mutation(
        "a key is left out of the index",
        "store/index/index_service.py",
        "texts, key_counts = _key_texts(unique_keys, keys)",
        "texts, key_counts = _key_texts([None] * len(keys), keys)",
        CRASH,
    ),
    Mutation(
        "a pull does not look at the checksum of a body",
        "codec/message/expected_record.py",
        "or (body_length and crc32(body) & _CRC_BITS != crc)",
        "or False",
        DAMAGED_STORES,
    ),
    Mutation(
        "a pull does not look at what a record says of its place",
        "codec/message/expected_record.py",
        "                or found_offset != queue_offset\n",
        "",
        DAMAGED_FILES,
    ),
    Mutation(
        "a queue entry names the wrong record",
        "store/dispatch/commit_log_dispatcher.py",
        "queue.put(queue_offset, physical_offset, size, tags_code)",
        "queue.put(queue_offset, physical_offset - physical_offset % 7, size, tags_code)",
        STORE,
    ),
    Mutation(
        "a sync of the log does nothing",
        "store/logfile/mapped_file.py",
        "            self._file_system.sync(self.fd)\n",
        "            pass\n",
        CRASH,
    ),
    Mutation(
        "the name of a new file is never synced",
        "store/logfile/mapped_file.py",
        "            self._file_system.sync_folder(folder)\n        # Another",
        "            pass\n        # Another",
        CRASH,
    ),
    Mutation(
        "a send is acknowledged before the sync",
        "store/flush/flush_service.py",
        "            self._waiting.append(_Wait(offset, loop.time() + timeout_s, sends, tell))\n",
        '            loop.call_soon(tell, "")\n',
        "tests/integration/test_kill_before_answer.py",
    ),
    Mutation(
        "what is appended during a sync is taken for synced by it",
        "store/flush/flush_service.py",
        "        self.flushed_offset = self._synced_end()\n        if self.error",
        "        self.flushed_offset = self._queue.max_offset\n        if self.error",
        "tests/unit/store/flush/test_flush_service.py",
    ),
    Mutation(
        "messages on their way into their queues count as entered",
        "store/message_appender.py",
        "        requests = pending[:ready]\n",
        "        requests = pending[:ready]\n        self._pending = pending[ready:]\n",
        CRASH_ORDERED,
    ),
    Mutation(
        "the checkpoint on disk stays where it was when the clock is set back",
        "store/flush/flush_service.py",
        "        if self._checkpoint.says_too_much:\n",
        "        if False:\n",
        CRASH_CLOCK,
    ),
    Mutation(
        "a queue is taken for synced without a sync",
        "store/flush/flush_service.py",
        "                    self._check_before_rewrite(queue, file)\n                    file.flush()",
        "                    file.flushed = file.wrote",
        "tests/unit/store/flush/test_flush_service.py",
    ),
    Mutation(
        "a table is renamed before it is synced",
        "common/atomic_file.py",
        "        file_system.sync(fd)\n",
        "",
        CRASH,
    ),
    Mutation(
        "a sync that failed is taken for one that succeeded",
        "store/logfile/mapped_file.py",
        "        except OSError:\n            self.to_write_again = True\n            raise\n",
        "        except OSError:\n            pass\n",
        DISK_ERRORS,
    ),
    Mutation(
        "what a failed sync left out is not written again",
        "store/logfile/mapped_file.py",
        "            if self.to_write_again:\n                self._write_again(self.flushed, wrote)\n",
        "",
        DISK_ERRORS,
    ),
    Mutation(
        "progress of delayed messages is written ahead of their copies",
        "broker/persist/durable_progress.py",
        "while self._waiting and self._waiting[0][0] <= flushed:",
        "while self._waiting:",
        DELAY_CRASH,
    ),
    Mutation(
        "a transaction that is rolled back is delivered",
        "processor/end_transaction.py",
        "self._put_real_message(half) if outcome == TRANSACTION_COMMIT_TYPE else None",
        "self._put_real_message(half)",
        TRANSACTION_CRASH,
    ),
    Mutation(
        "the beginning of a frame is dropped",
        "transport/connection.py",
        "self._buffer.keep(data[position:], needed)",
        "self._buffer.clear()",
        CONNECTION,
    ),
    Mutation(
        "memory is taken for the length that a frame claims",
        "transport/receive_buffer.py",
        "bytearray(min(needed, 2 * len(rest)))",
        "bytearray(needed)",
        "tests/unit/transport/test_receive_buffer.py",
    ),
    Mutation(
        "the timer of requests is not set again",
        "transport/outgoing_requests.py",
        "        if left:\n",
        "        if not left:\n",
        OUTGOING_REQUESTS,
    ),
    Mutation(
        "a request waits for the deadline of an earlier one",
        "transport/outgoing_requests.py",
        "            if deadline < self._timer_at:\n",
        "            if self._timer is None:\n",
        OUTGOING_REQUESTS,
    ),
    Mutation(
        "a one-way request waits for the next turn of the event loop",
        "transport/remoting_client.py",
        "        self._writers[address].flush()\n",
        "",
        "tests/unit/transport/test_remoting_client.py",
    ),
    Mutation(
        "a frame that breaks the protocol is not foreseen",
        "transport/connection.py",
        "        except RemoteProtocolError as error:\n",
        "        except NotADirectoryError as error:\n",
        STREAMS,
    ),
    Mutation(
        "the lengths in a binary header are not checked",
        "codec/remoting/rocketmq_header.py",
        "    if length < 0 or end > len(header):\n",
        "    if False:\n",
        DECODERS,
    ),
    Mutation(
        "a body that is no JSON is not foreseen",
        "processor/support/request_body.py",
        "    except CodecError as error:\n",
        "    except NotADirectoryError as error:\n",
        REQUESTS,
    ),
    Mutation(
        "a batch is entered with one message too few",
        "store/queue/batch_consume_queue.py",
        "self._append(BatchEntry(physical_offset, size, tags_code, store_timestamp, queue_offset, count))",
        "self._append(BatchEntry(physical_offset, size, tags_code, store_timestamp, queue_offset, max(count - 1, 1)))",
        BATCH_QUEUES,
    ),
    Mutation(
        "a batch is entered with one message too many",
        "store/queue/batch_consume_queue.py",
        "self._append(BatchEntry(physical_offset, size, tags_code, store_timestamp, queue_offset, count))",
        "self._append(BatchEntry(physical_offset, size, tags_code, store_timestamp, queue_offset, count + 1))",
        DAMAGED_BATCHES,
    ),
    Mutation(
        "delayed messages are delivered a second early",
        "broker/schedule/schedule_message_service.py",
        "            if due_at > now:\n",
        "            if due_at > now + 1000:\n",
        DELAY_CRASH,
    ),
    Mutation(
        "a copied log ends each part with another byte",
        "store/commitlog/commit_log.py",
        "        file.write(position, end, records)\n\n    def reserve",
        '        file.write(position, end, bytes(records[:-1]) + b"?")\n\n    def reserve',
        REPLICA_CRASH,
    ),
    Mutation(
        "each fiftieth message gets no queue entry",
        "store/dispatch/commit_log_dispatcher.py",
        "                if queue_offset >= queue.max_offset:\n",
        "                if queue_offset >= queue.max_offset and queue_offset % 50 != 49:\n",
        JAVA_KILL,
    ),
    Mutation(
        "a consumer commits past a message under way",
        "client/consumer/process_queue.py",
        "        return next(iter(self._held)) if self._held else self.next_offset\n",
        "        return self.next_offset\n",
        CONSUME_SERVICE,
    ),
    Mutation(
        "the values of a request are signed in the order of its header",
        "client/acl_client_rpc_hook.py",
        "names = sorted(fields)",
        "names = list(fields)",
        "tests/unit/client/test_acl_client_rpc_hook.py",
    ),
    Mutation(
        "a forked process uses the connections of the first",
        "transport/remoting_client.py",
        "        client.is_forked = True\n",
        "        client.is_forked = False\n",
        "tests/unit/client/test_loop_watchdog.py",
    ),
    Mutation(
        "bytes that one queue frees wake no other queue",
        "client/consumer/flow_control.py",
        "self._waiting if was_full else (held,)",
        "(held,)",
        "tests/unit/client/consumer/test_flow_control.py",
    ),
    Mutation(
        "a message of a queue that was given up is given out",
        "client/consumer/consume_message_service.py",
        "        if message not in held:\n            return None\n",
        "",
        CONSUME_SERVICE,
    ),
    Mutation(
        "an orderly queue gives out the next message before the first has ended",
        "client/consumer/consume_message_service.py",
        "            entry.start(received, self._clock.monotonic())\n",
        "            entry.remove(message)\n            self._ready.append(entry)\n",
        CONSUME_SERVICE,
    ),
    Mutation(
        "a queue is unlocked while its message is under way",
        "client/consumer/process_queue_table.py",
        "                await held.wait_idle()\n",
        "                await asyncio.sleep(0)\n",
        QUEUE_TABLE,
    ),
    Mutation(
        "a lock in doubt counts as held",
        "client/consumer/process_queue_table.py",
        "            if queue in locked and self.is_locked(held):\n",
        "            if queue in locked:\n",
        QUEUE_TABLE,
    ),
    Mutation(
        "the start of a new group is not persisted",
        "client/consumer/start_offset.py",
        "            await store.persist([queue])\n",
        "",
        "tests/unit/client/consumer/test_start_offset.py",
    ),
    Mutation(
        "a small send overtakes a large one that waits for room",
        "client/back_pressure.py",
        "        if self._waiting or not self._fits(size):\n",
        "        if not self._fits(size):\n",
        "tests/unit/client/test_back_pressure.py",
    ),
    Mutation(
        "a check that fails commits its transaction",
        "client/transaction_producer.py",
        'log.exception("producer %s: the check of transaction %s failed", self.group, header.transaction_id)\n',
        "state = LocalTransactionState.COMMIT_MESSAGE\n",
        "tests/integration/test_transaction_producer.py",
    ),
    Mutation(
        "a power loss in a test takes flushed offsets",
        "testing/power_loss.py",
        "            path.write_bytes(content)\n",
        "            pass\n",
        "tests/unit/testing/test_rocketmq_server.py",
    ),
)


def mutate(mutation: Mutation, sources: Path) -> None:
    """Put a fault into a copy of the sources.

    Raises:
        MutationError: the text to replace does not stand there once.
    """
    path = sources / mutation.file
    text = path.read_text()
    if text.count(mutation.before) != 1:
        raise MutationError(f"{mutation.name}: its text stands {text.count(mutation.before)} times in {mutation.file}")
    path.write_text(text.replace(mutation.before, mutation.after))


def failure_with(mutation: Mutation) -> str:
    """Return the line that says why the test of a mutation fails with it; empty when the test passes.

    Raises:
        MutationError: pytest ran no test, or not to its end.
    """
    with tempfile.TemporaryDirectory(prefix="rocketbroker-mutation-") as name:
        folder = Path(name)
        for each in COPIED:
            copy = shutil.copytree if (ROOT / each).is_dir() else shutil.copy2
            copy(ROOT / each, folder / each)
        mutate(mutation, folder / SOURCES)
        command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutation.test]
        environment = os.environ | {"PYTHONPATH": str(folder / "src")}
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode not in {0, FAILED} or " error" in done.stdout.splitlines()[-1]:
            raise MutationError(f"{mutation.name}: pytest ended with {done.returncode}\n{done.stdout[-3000:]}")
        return (
            next((line for line in done.stdout.splitlines() if line.startswith("E  ")), "E") if done.returncode else ""
        )


def main(words: list[str]) -> int:
    """Run mutations and print each result; exit with status 0 if tests detect all of them."""
    missed = 0
    for mutation in MUTATIONS:
        if words and not any(word in mutation.name for word in words):
            continue
        started = time.monotonic()
        why = failure_with(mutation)
        missed += not why
        took = f"{time.monotonic() - started:.0f} s"
        print(
            f"{'seen  ' if why else 'MISSED'} {mutation.name} ({mutation.test}), {took}\n       {why[1:].strip()[:160]}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
