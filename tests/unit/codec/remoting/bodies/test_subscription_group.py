from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.remoting_serializable import body_from
from rocketbroker.codec.remoting.bodies.subscription_group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupForbidden,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)


def test_defaults_are_those_of_java():
    config = SubscriptionGroupConfig.decode(b'{"groupName":"G"}')

    assert config.encode() == (
        b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
        b'"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"G",'
        b'"groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,'
        b'"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
    )


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
