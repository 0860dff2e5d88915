-- Time from birth to storage by topic, in ms. {facts}: DELAYS of facts.py.
-- An unknown delay, null, counts as a message and in nothing else. Doubles, since a damaged time may be any number.
SELECT
    broker,
    topic,
    sum(messages) AS messages,
    min(took) AS least_ms,
    try_divide(sum(CAST(took AS DOUBLE) * messages), sum(messages) FILTER (WHERE took IS NOT NULL)) AS mean_ms,
    percentile(took, :percentiles, messages) AS percentiles_ms,
    max(took) AS greatest_ms,
    coalesce(sum(messages) FILTER (WHERE took < 0), 0) AS born_later
FROM {facts}
GROUP BY broker, topic
