import pytest

from rocketbroker.broker.persist.config_manager import ConfigPersistService
from rocketbroker.broker.topic.message_request_mode_manager import MessageRequestModeManager
from rocketbroker.codec.remoting.bodies.pop import MessageRequestMode, SetMessageRequestModeRequestBody
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import ConfigError
from tests.support.running import running

POP = SetMessageRequestModeRequestBody("T", "G", MessageRequestMode.POP, 2)
PULL = SetMessageRequestModeRequestBody("T", "H")


def make(tmp_path, on_persist=None, **settings) -> MessageRequestModeManager:
    return MessageRequestModeManager(tmp_path / "messageRequestMode.json", BrokerConfig(**settings), on_persist)


def test_a_mode_that_was_set_counts_for_its_topic_and_group(tmp_path):
    manager = make(tmp_path)
    manager.update("T", "G", POP)

    assert manager.mode_of("T", "G") is POP
    assert manager.mode_of("T", "H") == PULL
    assert manager.mode_of("U", "G").mode is MessageRequestMode.PULL


def test_the_settings_give_the_mode_of_others_but_retry_topics_are_pulled(tmp_path):
    manager = make(tmp_path, default_message_request_mode="POP", default_pop_share_queue_num=3)

    assert manager.mode_of("T", "G") == SetMessageRequestModeRequestBody("T", "G", MessageRequestMode.POP, 3)
    assert manager.mode_of("%RETRY%G", "G") == SetMessageRequestModeRequestBody("%RETRY%G", "G")
    manager.update("T", "H", PULL)
    assert manager.mode_of("T", "H") is PULL


async def test_modes_survive_a_restart(tmp_path):
    async with running(ConfigPersistService()) as persist:
        manager = make(tmp_path, persist.submit)
        manager.update("T", "G", POP)
        written = manager.update("T", "H", PULL)
        assert written is not None
        assert await written == ""
    again = make(tmp_path)

    assert again.load()
    assert again.table == {"T": {"G": POP, "H": PULL}}
    # As fastjson of RocketMQ pretty-prints it.
    assert (tmp_path / "messageRequestMode.json").read_text() == (
        '{\n\t"messageRequestModeMap":{\n\t\t"T":{\n'
        '\t\t\t"G":{\n\t\t\t\t"consumerGroup":"G",\n\t\t\t\t"mode":"POP",\n\t\t\t\t"popShareQueueNum":2,\n'
        '\t\t\t\t"topic":"T"\n\t\t\t},\n'
        '\t\t\t"H":{\n\t\t\t\t"consumerGroup":"H",\n\t\t\t\t"mode":"PULL",\n\t\t\t\t"popShareQueueNum":0,\n'
        '\t\t\t\t"topic":"T"\n\t\t\t}\n\t\t}\n\t}\n}'
    )


def test_a_change_that_cannot_be_written_is_undone(tmp_path):
    writes: list[object] = []
    manager = make(tmp_path, writes.append)
    manager.update("T", "G", POP)
    manager.begin_write()
    manager.written()
    manager.update("T", "G", PULL)
    manager.update("U", "G", PULL)
    manager.begin_write()
    manager.refused()

    assert manager.table == {"T": {"G": POP}}
    assert writes == [manager] * 3


def test_a_slave_follows_its_master_unless_that_has_no_modes(tmp_path):
    writes: list[object] = []
    slave = make(tmp_path, writes.append)
    slave.update("Gone", "G", POP)
    slave.follow({"T": {"G": POP}})
    slave.follow({"T": {"G": POP}})
    slave.follow({})

    assert slave.table == {"T": {"G": POP}}
    assert writes == [slave] * 2


@pytest.mark.parametrize("text", ["{}", '{"messageRequestModeMap":{"T":{"G":{"mode":"PUSH"}}}}', "{"])
def test_a_file_that_is_no_such_table_stops_the_start(tmp_path, text: str):
    (tmp_path / "messageRequestMode.json").write_text(text)

    with pytest.raises(ConfigError, match=r"messageRequestMode\.json"):
        make(tmp_path).load()
