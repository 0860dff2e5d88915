"""Names of the package."""

import pytest

from rocketbroker import analytics
from rocketbroker.analytics.jobs.job_list import JOBS


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_each_job_is_a_name_of_the_package(job):
    assert getattr(analytics, job.load().__name__) is job.load()


@pytest.mark.parametrize("name", analytics.__all__)
def test_each_name_is_that_of_its_object(name):
    assert getattr(analytics, name).__name__ == name


def test_all_jobs_are_names():
    assert {"lag", "search", "compare", "export", "audit"} <= {*analytics.__all__}
