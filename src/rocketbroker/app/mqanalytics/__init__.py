"""The command ``mqanalytics``: PySpark over stores."""
