import logging

from rocketbroker.processor.admin.delete_expired_commitlog import DeleteExpiredCommitlogProcessor
from tests.support.processor_calls import call


class Cleaning:
    asked = 0

    def delete_files_manually(self) -> None:
        self.asked += 1


def test_the_removal_is_requested_and_its_requester_logged(caplog):
    cleaning = Cleaning()
    with caplog.at_level(logging.WARNING):
        assert call(DeleteExpiredCommitlogProcessor(cleaning).process) == (0, None, {}, b"")
    assert cleaning.asked == 1
    assert "removal of expired CommitLog files requested by 127.0.0.1:50000" in caplog.text
