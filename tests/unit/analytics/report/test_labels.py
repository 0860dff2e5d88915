from rocketbroker.analytics.report.labels import cut, unique


def test_long_names_keep_their_beginning_and_their_end():
    assert cut("orders") == "orders"
    assert cut("telemetry-" + "x" * 40 + "-eu-west") == "telemetry-xxxxxxxxxxx…-eu-west"
    assert len(cut("y" * 300)) == 30


def test_labels_that_are_alike_are_distinguished():
    assert unique(["a", "b", "a", "a"]) == ["a", "b", "a (2)", "a (3)"]
