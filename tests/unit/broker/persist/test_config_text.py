from rocketbroker.broker.persist.config_manager import encode_file
from rocketbroker.broker.persist.config_text import EntryTexts, file_text, struct_text
from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig, TopicConfigSerializeWrapper

VERSION = DataVersion(5, 6, 7)


def written(texts, table):
    return file_text(topicConfigTable=texts.object_text(table), dataVersion=struct_text(VERSION, 1))


def general(table):
    return encode_file(TopicConfigSerializeWrapper(table, VERSION))


def test_text_is_what_the_general_encoder_writes():
    table = {
        "T": TopicConfig("T", 1, 2, 6, attributes={"queue.type": "BatchCQ", "note": "line\nbreak"}),
        'odd"\\\n\u00e4': TopicConfig('odd"\\\n\u00e4'),
    }
    assert written(EntryTexts(), table) == general(table)
    assert written(EntryTexts(), {}) == general({})


def test_another_object_has_another_text():
    texts: EntryTexts = EntryTexts()
    table = {name: TopicConfig(name) for name in "abc"}
    assert written(texts, table) == general(table)
    table["a"] = TopicConfig("a", perm=4)
    table["b"] = TopicConfig("b", attributes={"queue.type": "BatchCQ"})
    del table["c"]
    table["d"] = TopicConfig("d")
    assert written(texts, table) == general(table)
    table["c"] = TopicConfig("c", 9, 9)
    assert written(texts, table) == general(table)
