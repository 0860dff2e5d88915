"""Faults put into the code on purpose, each with the test that must fail then."""

from tests.mutations.mutant import Mutation

DAMAGED_STORES = "tests/property/test_damaged_stores.py::test_any_damage_to_one_file"
DAMAGED_FILES = "tests/property/test_damaged_files.py"
DAMAGED_BATCHES = "tests/property/test_damaged_batches.py::test_any_damage_to_one_file"
CRASH = "tests/property/test_crash.py::test_a_crash_loses_nothing_promised"
UNKNOWN_PART = "tests/unit/store/recovery/test_log_recovery.py"
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
POP_CRASH = "tests/property/test_pop_crash.py"
POP_RECOVERY = "tests/unit/broker/pop/test_pop_recovery.py"
POP_SHORTCUTS = "tests/property/test_pop_shortcuts.py"
CONNECTION = "tests/property/test_connection.py"
OUTGOING_REQUESTS = "tests/unit/transport/test_outgoing_requests.py"
DECODERS = "tests/property/test_fuzz_decoders.py::test_any_input_is_accepted_or_rejected"
REQUESTS = "tests/property/test_fuzz_requests.py::test_requests_with_damage_are_answered"
FOUND_MESSAGES = "tests/integration/test_access_to_found_messages.py"
ACCESS_STORE = "tests/unit/auth/test_access_store.py"
EACH_CODE = "tests/integration/test_access_to_each_code.py"
SIGNED_RUNS = "tests/property/test_signed_runs.py"
RUNS = "tests/property/test_send_runs.py::test_one_special_send_among_others_is_handled_as_if_alone"
STREAMS = "tests/property/test_fuzz_connection.py"
JAVA_KILL = "tests/interop/test_java_kill.py::test_a_killed_broker_keeps_acknowledged_messages"
CONSUME_SERVICE = "tests/unit/client/consumer/test_consume_message_service.py"
QUEUE_TABLE = "tests/unit/client/consumer/test_process_queue_table.py"

MUTATIONS = (
    Mutation(
        "a user reads any message by its offset",
        "QueryMessageRequests.view_message_by_id",
        "check_found_record(requester, record, _GET)",
        "check_found_record(None, record, _GET)",
        FOUND_MESSAGES,
    ),
    Mutation(
        "a user sends any message back to the own retry topic",
        "ConsumerSendMsgBackProcessor.consumer_send_msg_back",
        "requester is not None and requester.is_limited",
        "False",
        FOUND_MESSAGES,
    ),
    Mutation(
        "a message of another topic with the same hash answers a query",
        "QueryMessageRequests.query_message",
        "decode_record(each, read_body=False).topic == header.topic",
        "each",
        FOUND_MESSAGES,
    ),
    Mutation(
        "a property that senders set counts as the topic of a message",
        "found_messages.topics_of",
        "is_system_topic(message.topic) and (real := message.get_property(PROPERTY_REAL_TOPIC))",
        "real := message.get_property(PROPERTY_REAL_TOPIC)",
        "tests/unit/processor/support/test_found_messages.py",
    ),
    Mutation(
        "any user in a producer group gets its half messages",
        "ProducerManager.available_channel",
        "channel.may_publish is None or channel.may_publish(topic)",
        "True",
        FOUND_MESSAGES,
    ),
    Mutation(
        "a prefix covers the topics of the broker",
        "AccessRules._covers_own",
        "self.decide(username, Right(Resource.cluster(cluster), (Action.GET,)), address).allowed",
        "True",
        FOUND_MESSAGES,
    ),
    Mutation(
        "one of the rights of a request is enough",
        "AccessRules._missing",
        "return right, verdict",
        "continue",
        EACH_CODE,
    ),
    Mutation(
        "a full pop does not visit a queue whose offset was set",
        "PopQueues.known_position",
        "committed if committed == queue.next_offset else None",
        "committed",
        POP_SHORTCUTS,
    ),
    Mutation(
        "a full pop does not visit a queue whose reset is pending",
        "PopMessageProcessor._visit_rest",
        "not header.order and not self._offsets.resets",
        "not header.order",
        POP_SHORTCUTS,
    ),
    Mutation(
        "a copy does not wait until its own queue of the retry topic is on disk",
        "PopReviveService._revive",
        "_has(self._topics.on_disk(retry_queue.topic), retry_queue.queue_id)",
        "_has(self._topics.on_disk(retry_queue.topic), 0)",
        POP_RECOVERY,
    ),
    Mutation(
        "an acknowledgement of several messages names the first only",
        "PopCheckPoints._put_ack",
        "len(offsets) == 1",
        "len(offsets) > 0",
        POP_CRASH,
    ),
    Mutation(
        "a pull whose messages were cut before it was read is not made again",
        "MessageFetcher._read_later",
        "self._queues.cuts != cuts",
        "self._queues.cuts < cuts",
        REPLICA_LOG,
    ),
    Mutation(
        "a cut does not wait for cleaning",
        "LogTruncation.alone",
        "self.file_changes",
        "asyncio.Lock()",
        REPLICA_LOG,
    ),
    Mutation(
        "readers find the entries that are being cut",
        "LogTruncation.truncate",
        "queue.hide_from(end)",
        "pass",
        REPLICA_LOG,
    ),
    Mutation(
        "a cut calls messages known to be on disk that were never synced",
        "LogTruncation._take_back",
        "min(known, last_ms)",
        "last_ms",
        REPLICA_LOG,
    ),
    Mutation(
        "the marks of deleted topics stay after a cut",
        "LogTruncation._truncate",
        "self.deleted.clamp(cut.offset)",
        "",
        REPLICA_LOG,
    ),
    Mutation(
        "a failed dispatch keeps what it knew of the queues",
        "ReputMessageService._dispatch_next",
        "self._forget_queues()",
        "",
        REPLICA_LOG,
    ),
    Mutation(
        "the index keeps the time of keys that were cut",
        "IndexService.cut",
        "self._entered_timestamp = 0",
        "",
        "tests/unit/store/index/test_index_service.py",
    ),
    Mutation(
        "a log file is handed over before its size is on disk",
        "AllocateMappedFileService._make",
        "file.sync()",
        "",
        REPLICA_CRASH,
    ),
    Mutation(
        "ha: a report beyond what the slave got counts",
        "HAConnection._reported",
        "offset > known",
        "offset > known + (1 << 50)",
        "tests/unit/ha/test_ha_service.py",
    ),
    Mutation(
        "ha: slaves that no name server knows count",
        "SlaveGate._count",
        "left[place] > 0",
        "left[place] >= 0",
        "tests/unit/ha/test_ha_service.py",
    ),
    Mutation(
        "ha: slaves get what is not on the master's disk",
        "TransferSource.end",
        "end if self._flushed_offset is None else min(self._flushed_offset(), end)",
        "end",
        "tests/unit/ha/test_ha_service.py",
    ),
    Mutation(
        "ha: one slave is enough, however many are needed",
        "GroupTransferService.reported",
        "offsets[needed - 1] if needed <= len(offsets) else -1",
        "offsets[0] if offsets else -1",
        "tests/unit/ha/test_ha_service.py",
    ),
    Mutation(
        "ha: a master without a slave acknowledges",
        "GroupTransferService.reported",
        "-1",
        "1 << 63",
        REPLICATION,
    ),
    Mutation(
        "ha: a slave with other messages continues",
        "TailCheck.take",
        "part.data[:size] != own",
        "len(part.data[:size]) != len(own)",
        "tests/unit/ha/test_ha_client.py::TestOtherHistory",
    ),
    Mutation(
        "ha: a damaged body is stored",
        "_damage",
        "wrong_body(record)",
        '""',
        "tests/unit/store/commitlog/test_raw_records.py",
    ),
    Mutation(
        "run: queue offsets are not taken",
        "MessageAppender._append_run",
        "queue.next_offset = end",
        "pass",
        STORE,
    ),
    Mutation(
        "run: a special message is stored like others",
        "header_template._read",
        'unique_key is not None or is_special or b"\\0" in raw',
        'unique_key is not None or b"\\0" in raw',
        RUNS,
    ),
    Mutation(
        "run: its sends are answered before they are on disk",
        "AlikeSends.process",
        "target.waits",
        "not target.waits",
        "tests/property/test_send_runs.py",
    ),
    Mutation(
        "run: its sends may wait for the disk in any number",
        "BrokerFastFailure.has_room",
        "self.waiting + sends <= self._config.send_thread_pool_queue_capacity",
        "True",
        "tests/property/test_send_runs.py",
    ),
    Mutation(
        "run: a late sync takes the place of each message from the answers",
        "acknowledged_answer",
        "answer.header if outcome.status in STORED else None",
        "None",
        "tests/property/test_send_runs.py",
    ),
    Mutation(
        "run: requests that are left to be handled one by one are skipped",
        "FrameReader._handle_run",
        "position < end",
        "False",
        "tests/property/test_send_runs.py",
    ),
    Mutation(
        "signed run: a text is signed without its escapes resolved",
        "signed_runs._decoded",
        "list(map(str.encode, _decode_texts(b'[\"%b\"]' % b'\",\"'.join(texts))))",
        'list(map(lambda text: text.replace(rb"\\u0001", b"\\x01").replace(rb"\\u0002", b"\\x02"), texts))',
        SIGNED_RUNS,
    ),
    Mutation(
        "signed run: a body is not signed",
        "SignedRuns._checked_run",
        "zip(*signed_pieces, bodies)",
        "zip(*signed_pieces)",
        SIGNED_RUNS,
    ),
    Mutation(
        "signed request alone: its body is not signed",
        "SignedRuns._checked_one",
        "signer.grant(connection, content % signed_of(signed), body, values[signature])",
        "signer.grant(connection, content % signed_of(signed), b'', values[signature])",
        SIGNED_RUNS,
    ),
    Mutation(
        "signed request: a decision outlives the policies that it followed",
        "Signer._current_key",
        "version != self._version_seen",
        "self._version_seen is None",
        SIGNED_RUNS,
    ),
    Mutation(
        "signed run: the first signature counts for all",
        "SigningKey.verify_all",
        'hmac.compare_digest(expected, b"".join(signatures).replace(b"=", b"A"))',
        'expected[:27] == b"".join(signatures)[:27]',
        SIGNED_RUNS,
    ),
    Mutation(
        "signed run: no right is needed",
        "SignedRuns._kind",
        "self._rights(constant)",
        "()",
        SIGNED_RUNS,
    ),
    Mutation(
        "a change to a table is answered before it is written",
        "answer_when_settled",
        "_answer_when_settled(waits, answer) if waits else answer",
        "answer",
        TABLE_CRASH,
    ),
    Mutation(
        "a change that the disk refuses stays in memory",
        "ConfigPersistService._refused",
        "submitted.manager.refused()",
        "pass",
        TABLE_CRASH,
    ),
    Mutation(
        "a query finds the first record whatever it is asked for",
        "MessageQueries._records",
        "self._record(offset)",
        "self._record(0)",
        DAMAGED_STORES,
    ),
    Mutation(
        "a query finds nothing",
        "MessageQueries.query_message",
        "await self._run(self._records, offsets)",
        "[]",
        DAMAGED_STORES,
    ),
    Mutation(
        "messages before a clock that was set back count as indexed",
        "_last_known_begin",
        "has_latest, lacking = bool(found), lacking + (found is False)",
        "has_latest = True",
        UNKNOWN_PART,
    ),
    Mutation(
        "an index file takes messages from after a clock that was set back",
        "IndexFile.fitting",
        "int(is_back.argmax()) if is_back.any() else len(times)",
        "len(times)",
        "tests/unit/store/index/test_index_service.py",
    ),
    Mutation(
        "a key is left out of the index",
        "index_keys.keys_of",
        "_key_texts(unique_keys, keys)",
        "_key_texts([None] * len(keys), keys)",
        CRASH,
    ),
    Mutation(
        "a pull does not look at the checksum of a body",
        "RecordCheck.unsound",
        "(body_length and crc32(body) & _CRC_BITS != crc)",
        "False",
        DAMAGED_STORES,
    ),
    Mutation(
        "a pull does not look at what a record says of its place",
        "RecordCheck.unsound",
        "found_offset != queue_offset",
        "False",
        DAMAGED_FILES,
    ),
    Mutation(
        "a queue entry names the wrong record",
        "CommitLogDispatcher.dispatch",
        "queue.put(queue_offset, physical_offset, size, tags_code)",
        "queue.put(queue_offset, physical_offset - physical_offset % 7, size, tags_code)",
        STORE,
    ),
    Mutation(
        "a sync of the log does nothing",
        "MappedFile.sync",
        "self._file_system.sync(self.fd)",
        "pass",
        CRASH,
    ),
    Mutation(
        "the name of a new file is never synced",
        "MappedFile.sync_names",
        "self._file_system.sync_folder(folder)",
        "pass",
        CRASH,
    ),
    Mutation(
        "a send is acknowledged before the sync",
        "CommitLogFlusher.when_flushed",
        "self._waiting.append(_Wait(offset, loop.time() + timeout_s, sends, tell))",
        'loop.call_soon(tell, "")',
        "tests/integration/test_kill_before_answer.py",
    ),
    Mutation(
        "what is appended during a sync is taken for synced by it",
        "CommitLogFlusher._succeeded",
        "self._synced_end()",
        "self._queue.max_offset",
        "tests/unit/store/flush/test_flush_service.py",
    ),
    Mutation(
        "messages on their way into their queues count as entered",
        "MessageAppender.dispatch",
        """
requests = pending[:ready]
self._dispatching = True
""",
        """
requests = pending[:ready]
self._pending = pending[ready:]
self._dispatching = True
""",
        CRASH_ORDERED,
    ),
    Mutation(
        "the checkpoint on disk stays where it was when the clock is set back",
        "CommitLogFlusher._note_on_disk",
        "self._checkpoint.says_too_much",
        "False",
        CRASH_CLOCK,
    ),
    Mutation(
        "a queue is taken for synced without a sync",
        "ConsumeQueueFlusher.flush",
        """
self._check_before_rewrite(queue, file)
file.flush()
""",
        "file.flushed = file.wrote",
        "tests/unit/store/flush/test_flush_service.py",
    ),
    Mutation(
        "a table is renamed before it is synced",
        "write_synced",
        "file_system.sync(fd)",
        "",
        CRASH,
    ),
    Mutation(
        "a sync that failed is taken for one that succeeded",
        "MappedFile.flush",
        """
self.to_write_again = True
raise
""",
        "pass",
        DISK_ERRORS,
    ),
    Mutation(
        "what a failed sync left out is not written again",
        "MappedFile.flush",
        """
if self.to_write_again:
    self._write_again(self.flushed, wrote)
""",
        "",
        DISK_ERRORS,
    ),
    Mutation(
        "progress of delayed messages is written ahead of their copies",
        "DurableProgress.advance",
        "self._waiting and self._waiting[0][0] <= flushed",
        "self._waiting",
        DELAY_CRASH,
    ),
    Mutation(
        "a transaction that is rolled back is delivered",
        "EndTransactionProcessor._end",
        "self._put_real_message(half) if outcome == TRANSACTION_COMMIT_TYPE else None",
        "self._put_real_message(half)",
        TRANSACTION_CRASH,
    ),
    Mutation(
        "the beginning of a frame is dropped",
        "RemotingConnection._handle_batch",
        "self._buffer.keep(data[position:], needed)",
        "self._buffer.clear()",
        CONNECTION,
    ),
    Mutation(
        "memory is taken for the length that a frame claims",
        "ReceiveBuffer.keep",
        "min(needed, 2 * len(rest))",
        "needed",
        "tests/unit/transport/test_peer_limits.py",
    ),
    Mutation(
        "the timer of requests is not set again",
        "OutgoingRequests._expire",
        """
if left:
    self._expire_at(min(left), loop)
""",
        """
if not left:
    self._expire_at(min(left), loop)
""",
        OUTGOING_REQUESTS,
    ),
    Mutation(
        "a request waits for the deadline of an earlier one",
        "OutgoingRequests.invoke",
        "deadline < self._timer_at",
        "self._timer is None",
        OUTGOING_REQUESTS,
    ),
    Mutation(
        "a one-way request waits for the next turn of the event loop",
        "RemotingClient.invoke_oneway",
        "self._writers[address].flush()",
        "",
        "tests/unit/transport/test_remoting_client.py",
    ),
    Mutation(
        "a frame that breaks the protocol is not foreseen",
        "RemotingConnection._handle_batch",
        """
try:
    position, needed = reader.handle(data)
except RemoteProtocolError as error:
    self._refuse(str(error))
    position = needed = len(data)
""",
        """
try:
    position, needed = reader.handle(data)
except NotADirectoryError as error:
    self._refuse(str(error))
    position = needed = len(data)
""",
        STREAMS,
    ),
    Mutation(
        "the lengths in a binary header are not checked",
        "frame._cut",
        "length < 0 or end > len(header)",
        "False",
        DECODERS,
    ),
    Mutation(
        "a body that is no JSON is not foreseen",
        "read_body",
        """
try:
    return kind.decode(body, most_values=MOST_VALUES)
except CodecError as error:
    raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"the body of the request: {error}") from None
""",
        """
try:
    return kind.decode(body, most_values=MOST_VALUES)
except NotADirectoryError as error:
    raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"the body of the request: {error}") from None
""",
        REQUESTS,
    ),
    Mutation(
        "a batch is entered with one message too few",
        "BatchConsumeQueue.put",
        "BatchEntry(physical_offset, size, tags_code, store_timestamp, queue_offset, count)",
        "BatchEntry(physical_offset, size, tags_code, store_timestamp, queue_offset, max(count - 1, 1))",
        BATCH_QUEUES,
    ),
    Mutation(
        "a batch is entered with one message too many",
        "BatchConsumeQueue.put",
        "BatchEntry(physical_offset, size, tags_code, store_timestamp, queue_offset, count)",
        "BatchEntry(physical_offset, size, tags_code, store_timestamp, queue_offset, count + 1)",
        DAMAGED_BATCHES,
    ),
    Mutation(
        "delayed messages are delivered a second early",
        "ScheduleMessageService._count_due",
        "due_at > now",
        "due_at > now + 1000",
        DELAY_CRASH,
    ),
    Mutation(
        "a copied log ends each part with another byte",
        "CommitLog._append_to_file",
        "file.write(position, end, records)",
        'file.write(position, end, bytes(records[:-1]) + b"?")',
        REPLICA_CRASH,
    ),
    Mutation(
        "each fiftieth message gets no queue entry",
        "CommitLogDispatcher.dispatch",
        "queue_offset >= queue.max_offset",
        "queue_offset >= queue.max_offset and queue_offset % 50 != 49",
        JAVA_KILL,
    ),
    Mutation(
        "a consumer commits past a message under way",
        "ProcessQueue.commit_offset",
        "next(iter(self._held)) if self._held else self.next_offset",
        "self.next_offset",
        CONSUME_SERVICE,
    ),
    Mutation(
        "the values of a request are signed in the order of its header",
        "_signed_names",
        "sorted(set(names) - left_out)",
        "name for name in names if name not in left_out",
        "tests/unit/client/core/test_client_config.py",
    ),
    Mutation(
        "a forked process uses the connections of the first",
        "_mark_forked",
        "client.is_forked = True",
        "client.is_forked = False",
        "tests/unit/client/core/test_heartbeat_sender.py",
    ),
    Mutation(
        "bytes that one queue frees wake no other queue",
        "HeldBytes.remove",
        "self._waiting if was_full else (held,)",
        "(held,)",
        "tests/unit/client/consumer/test_process_queue.py",
    ),
    Mutation(
        "a message of a queue that was given up is given out",
        "ConsumeMessageConcurrentlyService._begin",
        """
if message not in held:
    return None
""",
        "",
        CONSUME_SERVICE,
    ),
    Mutation(
        "an orderly queue gives out the next message before the first has ended",
        "ConsumeMessageOrderlyService._begin",
        "entry.start(received, self._clock.monotonic())",
        """
entry.remove(message)
self._ready.append(entry)
""",
        CONSUME_SERVICE,
    ),
    Mutation(
        "a queue is unlocked while its message is under way",
        "ProcessQueueTable._wait_idle",
        "held.wait_idle()",
        "asyncio.sleep(0)",
        QUEUE_TABLE,
    ),
    Mutation(
        "a lock in doubt counts as held",
        "ProcessQueueTable.renew_locks",
        "queue in locked and self.is_locked(held)",
        "queue in locked",
        QUEUE_TABLE,
    ),
    Mutation(
        "the start of a new group is not persisted",
        "StartOffset.find",
        "await store.persist([queue])",
        "",
        "tests/unit/client/consumer/test_process_queue_table.py",
    ),
    Mutation(
        "a small send overtakes a large one that waits for room",
        "BackPressure.try_acquire",
        "self._waiting or not self._fits(size)",
        "not self._fits(size)",
        "tests/unit/client/producer/test_message_sender.py",
    ),
    Mutation(
        "a check that fails commits its transaction",
        "TransactionProducer._answer_check",
        'log.exception("producer %s: the check of transaction %s failed", self.group, header.transaction_id)',
        "state = LocalTransactionState.COMMIT_MESSAGE",
        "tests/integration/test_transaction_producer.py",
    ),
    Mutation(
        "a power loss in a test takes flushed offsets",
        "PowerLoss.restore",
        "path.write_bytes(content)",
        "pass",
        "tests/unit/testing/test_rocketmq_server.py",
    ),
    Mutation(
        "analytics: a broken record ends no log",
        "message_reader._ends_log",
        "split.last and after < 0 and walk.found in {Found.END, Found.BROKEN}",
        "split.last",
        "tests/unit/analytics/log/test_message_reader.py",
    ),
    Mutation(
        "analytics: a Spark without its jars is taken for whole",
        "local_session._has_spark",
        '(package / "bin" / "spark-submit").is_file() and (package / "jars").is_dir()',
        '(package / "bin" / "spark-submit").is_file()',
        "tests/unit/analytics/spark/test_local_session.py",
    ),
    Mutation(
        "app: a signal during the start waits for its end",
        "server_process.serve.stop",
        "starting.cancel()",
        "",
        "tests/unit/app/test_server_process.py",
    ),
    Mutation(
        "app: the parts of a role run on at the stop",
        "RoleParts.stop",
        "await self._stop([part for _, part in self._parts])",
        "",
        "tests/unit/app/test_broker_replication.py",
    ),
    Mutation(
        "app: a long log line of just the limit is cut",
        "logging_setup.truncated",
        "len(text) <= _MOST_CHARACTERS",
        "len(text) < _MOST_CHARACTERS",
        "tests/unit/app/test_logging_setup.py",
    ),
    Mutation(
        "broker: unregistered filters stay on disk",
        "ConsumerFilterManager.unregister",
        "self.persist()",
        "",
        "tests/unit/broker/test_consumer_filter_manager.py",
    ),
    Mutation(
        "broker: held pulls end a tick early",
        "Deadlines.add",
        "int((asyncio.get_running_loop().time() + seconds) / _TICK_S) + 1",
        "int((asyncio.get_running_loop().time() + seconds) / _TICK_S)",
        "tests/unit/broker/longpolling/test_held_requests.py",
    ),
    Mutation(
        "broker: unchanged progress is written again",
        "ScheduleMessageService.flush",
        "self._changed = False",
        "",
        "tests/unit/broker/test_schedule_message_service.py",
    ),
    Mutation(
        "broker: an address server's port is given twice",
        "TopAddressing.url",
        '":" in domain',
        '":" not in domain',
        "tests/unit/broker/registration/test_namesrv_link.py",
    ),
    Mutation(
        "client: a broker is used before it knows the client",
        "HeartbeatSender.greet",
        "await asyncio.wait([self._tasks.start(self._send(address), 'greet')], timeout=timeout_s)",
        "",
        "tests/unit/client/core/test_heartbeat_sender.py",
    ),
    Mutation(
        "client: a reply reaches nobody",
        "PendingReplies.take",
        "waiting.set_result(reply)",
        "",
        "tests/unit/client/core/test_client_remoting_processor.py",
    ),
    Mutation(
        "client: pulled messages are not counted",
        "ConsumerStats.add_pull",
        "stats.pulled.add(messages, messages, now)",
        "",
        "tests/unit/client/consumer/test_consumer_stats.py",
    ),
    Mutation(
        "client: a message of just the limit fits no batch",
        "outgoing._part",
        "size > max_size",
        "size >= max_size",
        "tests/unit/client/producer/test_outgoing.py",
    ),
    Mutation(
        "codec: a route with an order is written without it",
        "TopicRouteData._encoded",
        "order is None",
        "order is not None",
        "tests/unit/codec/remoting/bodies/test_route.py",
    ),
    Mutation(
        "codec: a property without a value hides the next",
        "message_properties._scan",
        "value or unique_key",
        "unique_key",
        "tests/unit/codec/message/test_message_properties.py",
    ),
    Mutation(
        "codec: a timer message at the end of the window has the wrong slot",
        "timer_slots.slot_of",
        "ahead < roll_window_ms",
        "ahead <= roll_window_ms",
        "tests/unit/codec/storefile/test_timer_slots.py",
    ),
    Mutation(
        "codec: a chain of the index counts as whole",
        "index_image._wrong_slots",
        "expected[begin : begin + len(slots)] != slots",
        "expected[begin : begin + len(slots)] == slots",
        "tests/unit/codec/storefile/test_index_image.py",
    ),
    Mutation(
        "codec: an indented list is written in one line",
        "fastjson._Writer._array",
        "items and not self._indent and all(type(item) is str for item in items)",
        "items",
        "tests/unit/codec/remoting/test_fastjson.py",
    ),
    Mutation(
        "common: an empty table takes the place of its backup",
        "atomic_file.load_table",
        "before is not None and count(before) != 0",
        "before is not None",
        "tests/unit/common/test_atomic_file.py",
    ),
    Mutation(
        "common: the names in a folder are not synced",
        "platform.sync_folder",
        "os.fsync(fd)",
        "",
        "tests/unit/common/test_platform.py",
    ),
    Mutation(
        "common: any error counts as a limit of open files",
        "open_files.limit_named",
        "error.errno not in {errno.EMFILE, errno.ENFILE}",
        "False",
        "tests/unit/common/test_open_files.py",
    ),
    Mutation(
        "ha: a change of the link is not announced",
        "HAClient._note",
        "self.on_change()",
        "",
        "tests/unit/ha/test_ha_client.py",
    ),
    Mutation(
        "ha: two logs agree on one record too many",
        "CommonPrefix.find_end",
        "(middle := low + (high - low) // size // 2 * size) > low",
        "(middle := low + (high - low) // size // 2 * size) >= low",
        "tests/unit/ha/test_history_check.py",
    ),
    Mutation(
        "namesrv: the last allowed entry is refused",
        "route_info_manager._check",
        "value > limit",
        "value >= limit",
        "tests/unit/namesrv/test_route_info_manager.py",
    ),
    Mutation(
        "namesrv: brokers are not counted",
        "RouteInfoManager._check_limits",
        '_check("maxBrokers", len(self.brokers.live) + 1, config.max_brokers, "brokers")',
        "",
        "tests/unit/namesrv/test_route_info_manager.py",
    ),
    Mutation(
        "namesrv: routes name filter servers that are gone",
        "TopicRoutes._filter_servers",
        "address in live",
        "address not in live",
        "tests/unit/namesrv/test_topic_route.py",
    ),
    Mutation(
        "namesrv: a withdrawn permission stays",
        "TopicQueueTable.set_permission",
        "self._brokers[broker_name].queues = {topic: changed[data] for topic, data in table.items()}",
        "",
        "tests/unit/namesrv/test_topic_queue_table.py",
    ),
    Mutation(
        "processor: a committed offset of 0 counts as none",
        "ConsumerOffsetRequests.query_consumer_offset",
        "offset >= 0",
        "offset > 0",
        "tests/unit/processor/test_consumer_offset.py",
    ),
    Mutation(
        "store: who waits for the disk hears nothing",
        "CommitLogFlusher._end_first",
        "wait.tell(outcome)",
        "",
        "tests/unit/store/flush/test_flush_service.py",
    ),
    Mutation(
        "store: a filter examines all entries of a queue",
        "filtered_reader._Passes.is_done",
        "len(self.matched) == len(self.found[0])",
        "len(self.matched) != len(self.found[0])",
        "tests/unit/store/read/test_filtered_reader.py",
    ),
    Mutation(
        "store: an idle flush thread sleeps on though the log has grown",
        "CommitLogFlusher.look",
        "self._thread.wake_idle()",
        "",
        "tests/unit/store/flush/test_flush_service.py",
    ),
    Mutation(
        "broker: a transaction that ended while it was read is put back",
        "TransactionalMessageCheckService._check_next",
        """if not half_offsets.is_open(offset):
    return True""",
        "",
        "tests/unit/broker/transaction/test_transactional_message_check_service.py",
    ),
    Mutation(
        "analytics: a range of time begins without a margin for the clock",
        "split.offsets_of_time",
        "since_ms - CLOCK_MARGIN_MS",
        "since_ms",
        "tests/unit/analytics/log/test_split.py",
    ),
    Mutation(
        "analytics: a range of time ends without a margin for the clock",
        "split.offsets_of_time",
        "until_ms + CLOCK_MARGIN_MS",
        "until_ms",
        "tests/unit/analytics/log/test_split.py",
    ),
    Mutation(
        "store: keys entered during the sync of the index count as synced",
        "IndexService.sync",
        "return entered",
        "return self._entered_timestamp",
        "tests/unit/store/index/test_index_service.py",
    ),
    Mutation(
        "ha: no slave hears of new messages once one of two leaves",
        "HAService.gone",
        """if not self.connections:
    self._appender.on_appended = None""",
        "self._appender.on_appended = None",
        "tests/unit/ha/test_ha_service.py",
    ),
    Mutation(
        "ha: reports of slaves acknowledge nothing",
        "HAService.reported",
        "self._transfers.reported()",
        "",
        "tests/unit/ha/test_ha_service.py",
    ),
    Mutation(
        "ha: any proof of a slave is taken",
        "MasterHandshake.feed",
        'not hmac.compare_digest(proof, access.proof(b"slave", self._slave, self._own))',
        "False",
        "tests/unit/ha/test_ha_handshake.py",
    ),
    Mutation(
        "ha: any proof of a master is taken",
        "SlaveHandshake.feed",
        'not hmac.compare_digest(proof, access.proof(b"master", self._own, self._master))',
        "False",
        "tests/unit/ha/test_ha_handshake.py",
    ),
    Mutation(
        "proxy: a HelloRetryRequest counts as the answer to a client",
        "RelayedHandshake._has_server_hello",
        "self._handshake_records > is_retry",
        "self._handshake_records > 0",
        "tests/unit/proxy/test_relayed_handshake.py",
    ),
    Mutation(
        "proxy: a handshake that waits for its place is not read",
        "_Accepted.data_received",
        "self.first_bytes = data",
        "self.first_bytes = data\nself.transport.pause_reading()",
        "tests/unit/proxy/test_first_byte_relay.py::test_a_handshake_that_waits_is_read_on",
    ),
    Mutation(
        "auth: users and policies count before they are on disk",
        "AccessStore._write_newest",
        "loop = asyncio.get_running_loop()",
        "loop = asyncio.get_running_loop()\nself._published, self.rules = state, AccessRules(state.users, state.acls)",
        ACCESS_STORE,
    ),
    Mutation(
        "auth: users that a failed write left on disk stay there",
        "AccessStore._write_newest",
        "self._is_unsure = True",
        "self._is_unsure = False",
        ACCESS_STORE,
    ),
    Mutation(
        "auth: a copy of users that was changed on its way is taken",
        "SecretSeal.check_copy",
        "not hmac.compare_digest(self.copy_tag(nonce, copy).encode(), tag.encode())",
        "False",
        "tests/unit/app/test_access_control.py",
    ),
    Mutation(
        "auth: a copy of users from a time to come is taken",
        "AccessStore._check_time",
        "ahead_ms > MAX_AHEAD_MS or version.counter > _MAX_COUNTER",
        "False",
        ACCESS_STORE,
    ),
    Mutation(
        "auth: an older copy of users is taken",
        "_is_newer",
        "(one.timestamp, one.counter) > (other.timestamp, other.counter)",
        "True",
        ACCESS_STORE,
    ),
    Mutation(
        "client: members divide queues in the order of the answer",
        "RebalanceImpl.allocate",
        "sorted(members, key=java_order)",
        "list(members)",
        "tests/unit/client/consumer/test_rebalance.py",
    ),
    Mutation(
        "store: a cut of a queue is not synced",
        "ConsumeQueue.cut",
        "self.dirty = True",
        "",
        "tests/unit/store/queue/test_consume_queue.py",
    ),
    Mutation(
        "broker: a slave that looks again waits for its round",
        "SlaveSynchronize.look_again",
        "self._wake.set()",
        "",
        "tests/unit/broker/slave/test_slave_synchronize.py",
    ),
    Mutation(
        "broker: a slave with another master waits for its round",
        "SlaveSynchronize._master_changed",
        "self._wake.set()",
        "",
        "tests/unit/broker/slave/test_slave_synchronize.py",
    ),
    Mutation(
        "broker: a slave takes over the progress of its former master",
        "SlaveSynchronize._master_changed",
        "self._gate.clear()",
        "",
        "tests/unit/broker/slave/test_slave_synchronize.py",
    ),
    Mutation(
        "broker: slaves are asked for at the next round only",
        "KnownSlaves.look_again",
        "self._soon.set()",
        "",
        "tests/unit/broker/registration/test_broker_registration.py",
    ),
    Mutation(
        "store: deleteWhen is an hour of UTC",
        "CleanCommitLogService._why",
        "time.localtime(self._clock.time_ms() // 1000)",
        "time.gmtime(self._clock.time_ms() // 1000)",
        "tests/unit/store/clean/test_clean_commit_log_service.py",
    ),
    Mutation(
        "broker: committed offsets are not written",
        "ConsumerOffsetManager._keep",
        "self._changed = True",
        "",
        "tests/unit/broker/offset/test_consumer_offset_manager.py",
    ),
    Mutation(
        "broker: a client that left its groups is kept",
        "ProducerManager._drop",
        "self._forget_id(channel)",
        "",
        "tests/property/test_strangers.py::test_a_broker_withstands_strangers",
    ),
)
