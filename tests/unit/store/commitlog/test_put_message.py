from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus


def test_a_message_needs_a_topic_a_queue_and_a_body_alone():
    message = MessageExtBrokerInner("T", 1, b"body")

    assert (message.properties, message.flag, message.sys_flag, message.born_host) == (b"", 0, 0, bytes(8))


def test_a_put_that_failed_has_no_place():
    result = PutMessageResult(PutMessageStatus.DISK_FULL, reason="why")

    assert (result.physical_offset, result.queue_offset, result.physical_offsets) == (-1, -1, ())


def test_a_batch_is_one_send_and_each_message_of_a_run_is_one():
    batch = PutMessageResult(PutMessageStatus.PUT_OK, 0, 5, 0, 200, "", [0, 100])
    run = PutMessageResult(PutMessageStatus.PUT_OK, 0, 5, 0, 200, "", [0, 100], [5, 0])

    assert (batch.sends, run.sends) == (1, 2)
