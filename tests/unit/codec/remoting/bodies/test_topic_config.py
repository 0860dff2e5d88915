import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion, body_from
from rocketbroker.codec.remoting.bodies.topic_config import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupForbidden,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicFilterType,
)
from rocketbroker.common.errors import CodecError

INT = st.integers(-(2**31), 2**31 - 1)
NAMES = st.text("abcXYZ%|_-019", min_size=1)
WORDS = st.text(st.characters(codec="utf-8"), max_size=20)
topics = st.builds(
    TopicConfig,
    NAMES,
    INT,
    INT,
    INT,
    st.sampled_from(TopicFilterType),
    attributes=st.dictionaries(WORDS, WORDS, max_size=3),
)


@given(topics)
def test_the_text_form_keeps_all_it_has_room_for(config: TopicConfig):
    assert TopicConfig.decode_text(config.encode_text()) == config


def test_the_text_form_is_that_of_java():
    config = TopicConfig("T", 8, 4, 6, attributes={"message.type": "FIFO"})

    assert config.encode_text() == 'T 8 4 6 SINGLE_TAG {"message.type":"FIFO"}'


@pytest.mark.parametrize("text", ["T 8 4 6 SINGLE_TAG", "T 8 4 6 SINGLE_TAG ", "T 8 4 6 SINGLE_TAG {}"])
def test_older_brokers_write_no_attributes(text: str):
    assert TopicConfig.decode_text(text) == TopicConfig("T", 8, 4, 6)


@pytest.mark.parametrize("text", ["", "T", "T 8 4 6", "T 8 4 six SINGLE_TAG", "T 8 4 6 ANY_TAG"])
def test_a_text_without_its_fields_is_rejected_and_the_form_named(text: str):
    with pytest.raises(CodecError, match=r"is not <name> <readQueueNums> <writeQueueNums>"):
        TopicConfig.decode_text(text)


def test_attributes_that_are_no_json_are_rejected():
    with pytest.raises(CodecError, match="JSON"):
        TopicConfig.decode_text("T 8 4 6 SINGLE_TAG {a b}")


def test_defaults_are_those_of_java():
    assert TopicConfig.decode(b"{}") == TopicConfig("", 16, 16, 6, TopicFilterType.SINGLE_TAG, 0, False, {})


def test_defaults_are_those_of_java_subscription_group():
    config = SubscriptionGroupConfig.decode(b'{"groupName":"G"}')

    assert config.encode() == (
        b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
        b'"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"G",'
        b'"groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,'
        b'"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
    )


def test_attributes_say_what_is_read_by_priority():
    assert TopicConfig("T", attributes={"message.type": "PRIORITY"}).has_priorities
    assert not TopicConfig("T", attributes={"message.type": "NORMAL"}).has_priorities
    factors = {None: 100, "0": 0, "50": 50, "+50": 50, "0050": 50, "-0": 0, "100": 100}
    factors |= dict.fromkeys(("many", "101", "-1", "", "9" * 20), 100)
    for text, factor in factors.items():
        attributes = {} if text is None else {"priority.factor": text}
        assert SubscriptionGroupConfig("G", attributes=attributes).priority_factor == factor


def test_retry_policies_and_fixed_subscriptions_survive():
    config = SubscriptionGroupConfig(
        "G",
        group_retry_policy=GroupRetryPolicy(
            GroupRetryPolicyType.EXPONENTIAL, ExponentialRetryPolicy(), CustomizedRetryPolicy([1000, 5000])
        ),
        subscription_data_set=[SimpleSubscriptionData("T", "TAG", "a || b", 5)],
        attributes={"k": "v"},
    )

    assert SubscriptionGroupConfig.decode(config.encode()) == config
    assert b'"exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2}' in config.encode()


def test_the_table_is_also_a_config_file():
    wrapper = SubscriptionGroupWrapper({"G": SubscriptionGroupConfig("G")}, {"G": {"T": 2}}, DataVersion(1, 2))
    pretty = fastjson.dumps(wrapper, indent="\t")

    assert b"\n\t" in pretty
    assert body_from(fastjson.loads(pretty), SubscriptionGroupWrapper) == wrapper


def test_a_group_may_read_unless_it_is_forbidden():
    assert GroupForbidden.decode(b'{"group":"G","topic":"T"}').readable is True
