-- Messages of each topic and queue, brokers added up. {facts}: QUEUES of facts.py.
SELECT topic, queue_id, sum(messages) AS messages
FROM {facts}
GROUP BY topic, queue_id
