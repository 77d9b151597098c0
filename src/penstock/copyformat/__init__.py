"""Turns blocks into COPY payloads: chooses the COPY command for a dialect, and rewrites what the command cannot read.

Pure: the room does no I/O.
"""

from penstock.copyformat.encoder import Encoder, make_encoder, make_form_encoder

__all__ = ["Encoder", "make_encoder", "make_form_encoder"]
