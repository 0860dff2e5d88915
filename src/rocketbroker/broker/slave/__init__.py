"""The tables of a slave, which follow those of its master (org.apache.rocketmq.broker.slave)."""
