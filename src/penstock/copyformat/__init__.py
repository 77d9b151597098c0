"""Block → COPY payload: which COPY command suits a dialect, and what must be rewritten for it.

Pure: bytes and values in, bytes and values out.
"""

from penstock.copyformat.encoder import Encoder, make_encoder

__all__ = ["Encoder", "make_encoder"]
