"""Jobs over stores: functions from Spark data frames to data frames, listed in ``job_list``."""
