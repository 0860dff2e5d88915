"""Jobs over stores: each a function that takes and returns Spark data frames; ``job_list`` says which there are."""
