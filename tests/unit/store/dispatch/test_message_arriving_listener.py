from rocketbroker.store.dispatch.message_arriving_listener import NoListener


def test_without_waits_a_notification_does_nothing():
    listener = NoListener()

    assert not listener.waiting
    listener.arriving("T", 0, 1, 0)
