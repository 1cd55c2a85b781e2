"""`python -m tests.system.faults.peers`."""

import sys

from tests.system.faults.peers.command import main

sys.exit(main())
