"""What may be done with a topic or a broker (org.apache.rocketmq.common.constant.PermName)."""

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
