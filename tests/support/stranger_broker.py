"""mqbroker to which 127.0.0.1 alone is this machine: other loopback addresses are those of mere clients.

On SIGUSR1 it writes the number of live objects of each type into the file that STRANGER_COUNTS names.
"""

import gc
import json
import os
import signal
from collections import Counter
from pathlib import Path
from unittest.mock import patch

from rocketbroker.common import address_shares
from rocketbroker.transport import access

THIS_MACHINE = "127.0.0.1"


def write_counts(_signal: int, _frame: object) -> None:
    """Write the counts; the file appears complete."""
    gc.collect()
    counts = Counter(type(each).__name__ for each in gc.get_objects())
    path = Path(os.environ["STRANGER_COUNTS"])
    path.with_suffix(".tmp").write_text(json.dumps(counts))
    path.with_suffix(".tmp").rename(path)


if __name__ == "__main__":
    patch.object(access, "is_this_machine", lambda peer, _own: peer == THIS_MACHINE).start()
    patch.object(address_shares, "is_loopback", lambda key: key == bytes([127, 0, 0, 1])).start()
    signal.signal(signal.SIGUSR1, write_counts)
    # After the changes, which those who import the functions by name would miss.
    from rocketbroker.app.broker_startup import main

    main()
