from rocketbroker.store.dispatch.message_arriving_listener import NoListener


def test_nobody_waits_and_telling_nobody_does_nothing():
    listener = NoListener()

    assert not listener.waiting
    listener.arriving("T", 0, 1, 0)
