"""PySpark data sources, jobs and reports over store files."""
