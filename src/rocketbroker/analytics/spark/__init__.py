"""The Spark data source, its streams, tables and sessions."""
