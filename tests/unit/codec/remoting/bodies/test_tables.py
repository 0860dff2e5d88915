from rocketbroker.codec.remoting.bodies.tables import GroupList, KVTable, TopicList


def test_values_are_texts_whatever_they_look_like():
    table = KVTable({"msgPutTotalTodayNow": "0", "scheduleMessageOffset_1": "6,6"})

    assert table.encode() == b'{"table":{"msgPutTotalTodayNow":"0","scheduleMessageOffset_1":"6,6"}}'
    assert KVTable.decode(table.encode()) == table


def test_a_list_of_topics_names_the_broker_only_where_one_gave_it():
    assert TopicList(["T"]).encode() == b'{"topicList":["T"]}'
    assert TopicList(["T"], "127.0.0.1:1").encode() == b'{"brokerAddr":"127.0.0.1:1","topicList":["T"]}'


def test_a_list_of_groups():
    assert GroupList.decode(b'{"groupList":["G"]}') == GroupList(["G"])
