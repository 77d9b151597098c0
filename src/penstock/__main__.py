"""Makes `python -m penstock` do the same as the command `penstock`."""

from __future__ import annotations

from penstock.cli.main import run_process

run_process()
