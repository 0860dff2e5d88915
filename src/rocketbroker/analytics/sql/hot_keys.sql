-- The most frequent keys of each topic. {facts}: KEYS of facts.py, where a null key counts the messages with keys.
WITH counted AS (
    SELECT broker, topic, key, sum(messages) AS messages, sum(bytes) AS bytes
    FROM {facts}
    GROUP BY broker, topic, key
),
ranked AS (
    SELECT
        *,
        max(CASE WHEN key IS NULL THEN messages END) OVER (PARTITION BY broker, topic) AS keyed,
        row_number() OVER (PARTITION BY broker, topic ORDER BY key IS NULL, messages DESC, key) AS rank
    FROM counted
)
SELECT broker, topic, rank, key, messages, bytes, messages / keyed AS share
FROM ranked
WHERE key IS NOT NULL AND rank <= :top
