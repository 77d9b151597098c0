"""The command line: arguments, progress, output and exit codes, with one file for each command.

The values that it shows come from the packages below. This package only decides how they are shown.
"""

from __future__ import annotations

import gc

# Each import creates thousands of objects that stay in memory. Searching them again and again for garbage in cycles
# takes a tenth of a short command's time. A load creates few cycles.
gc.set_threshold(100_000, 10, 10)
