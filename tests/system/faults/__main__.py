"""`python -m tests.system.faults`."""

import sys

from tests.system.faults.command import main

sys.exit(main())
