-- Messages of each topic by queue. {facts}: QUEUES of facts.py; {topics}: broker, topic, write_queue_nums.
-- Queues without messages count where a topic has any. The topics stand among the rows instead of being joined to them:
-- a join would read the messages twice.
WITH counted AS (
    SELECT broker, topic, queue_id, sum(messages) AS messages, sum(bytes) AS bytes, NULL AS write_queue_nums
    FROM {facts}
    GROUP BY broker, topic, queue_id
    UNION ALL
    SELECT broker, topic, NULL, 0, 0, write_queue_nums FROM {topics} WHERE write_queue_nums > 0
),
used AS (
    SELECT *, max(messages) OVER (PARTITION BY broker, topic) AS most FROM counted
),
numbered AS (
    SELECT
        broker,
        topic,
        explode(
            CASE WHEN queue_id IS NULL THEN sequence(0, write_queue_nums - 1) ELSE array(queue_id) END
        ) AS queue_id,
        messages,
        bytes
    FROM used
    WHERE most > 0
),
queues AS (
    SELECT broker, topic, queue_id, sum(messages) AS messages, sum(bytes) AS bytes
    FROM numbered
    GROUP BY broker, topic, queue_id
)
SELECT
    *,
    messages / sum(messages) OVER of_topic AS share,
    messages * count(*) OVER of_topic / sum(messages) OVER of_topic AS of_mean
FROM queues
WINDOW of_topic AS (PARTITION BY broker, topic)
