"""`python -m penstock` is `penstock`."""

from __future__ import annotations

import sys

from penstock.cli.main import main

sys.exit(main())
