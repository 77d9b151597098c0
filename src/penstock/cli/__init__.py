"""The command line: arguments, progress, what is printed, exit codes; one file per command.

Whatever it shows comes from values that the rooms below return; nothing is decided here but how to say it.
"""

from __future__ import annotations

import gc

# Modules stay, and each import makes thousands of objects: looking through them again and again for garbage in cycles
# is a tenth of a short command. What a load makes in cycles is little.
gc.set_threshold(100_000, 10, 10)
