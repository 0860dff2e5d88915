"""Context of the first attempt of a task of a micro-batch, for writers of the sink without Spark."""


class SinkTask:
    """Takes the place of ``TaskContext.get``."""

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 2

    def attemptNumber(self) -> int:  # noqa: N802 - Spark's name
        return 0

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - Spark's name
        return {"sql.streaming.queryId": "q", "streaming.sql.batchId": "5"}[name]
