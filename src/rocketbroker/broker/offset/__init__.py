"""Consumer offsets: committing, resetting and recovering them (org.apache.rocketmq.broker.offset)."""
