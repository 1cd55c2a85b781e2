"""An application whose import ends the process."""

import sys

sys.exit(0)
