-- Sizes of messages by topic, in bytes of whole records. {facts}: SIZES of facts.py.
SELECT
    broker,
    topic,
    sum(messages) AS messages,
    sum(size * messages) AS bytes,
    min(size) AS least,
    sum(size * messages) / sum(messages) AS mean,
    percentile(size, :percentiles, messages) AS percentiles,
    max(size) AS greatest
FROM {facts}
GROUP BY broker, topic
