import pickle

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, IntegerType, StructType

from rocketbroker.analytics.spark.rocketmq import RocketMQ
from rocketbroker.common.errors import ConfigError

BODIES = StructType().add("body", BinaryType())


def source(**options: str) -> RocketMQ:
    return RocketMQ({"namesrvAddr": "ns:9876", "topic": "T", **options})


def test_a_writer_goes_to_the_workers():
    for writer in (source().writer(BODIES, overwrite=False), source().streamWriter(BODIES, overwrite=False)):
        assert vars(pickle.loads(cloudpickle.dumps(writer))) == vars(writer)


def test_what_cannot_be_written_is_refused_before_a_task_starts():
    with pytest.raises(ConfigError, match=r'messages cannot be overwritten; use mode\("append"\)'):
        source().writer(BODIES, overwrite=True)
    with pytest.raises(ConfigError, match=r'messages cannot be overwritten; use outputMode\("append"\)'):
        source().streamWriter(BODIES, overwrite=True)
    with pytest.raises(ConfigError, match="column value is unknown"):
        source().writer(BODIES.add("value", IntegerType()), overwrite=False)
    with pytest.raises(ConfigError, match="has no option 'speed'"):
        source(speed="9").streamWriter(BODIES, overwrite=False)
