"""Removes the secrets of connection strings and signed URLs from text. Pure.

Messages that repeat what a user typed use it, because the user may have typed a secret in the wrong place. A value that
is known to be secret is never put into a message.
"""

from __future__ import annotations

import re

# The user and password of a URL. In a PostgreSQL URI, people forget to encode slashes in them; in any other URL, the
# text after the host's slash is a path, which may contain @. Both alternatives match even if a slash of :// is missing.
_USERINFO = re.compile(r"""(\bpostgres(?:ql)?:/*)[^\s"']*@|(\b[a-z][a-z0-9+.-]*:/+)[^\s"'/]*@""", re.IGNORECASE)

# password='two words' of a connection string, which may have blanks around the equals sign; X-Amz-Signature=... of a
# URL signed by AWS, sig=... of a URL signed by Azure.
_NAMED = re.compile(
    r"""\b((?:[\w.-]*(?:password|passwd|signature|token|secret|credential)|sig)\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&"']+)""",
    re.IGNORECASE,
)


def hide_secrets(text: str) -> str:
    """Return a text in which everything that looks like a secret is replaced by three asterisks.

    >>> hide_secrets('no command "postgresql://ann:p/w@db1/shop?sslpassword=x"')
    'no command "postgresql://***@db1/shop?sslpassword=***"'
    >>> hide_secrets("s3://bucket/a@b.csv, https://host/a?X-Amz-Signature=0f&x=1")
    's3://bucket/a@b.csv, https://host/a?X-Amz-Signature=***&x=1'
    """
    text = _USERINFO.sub(lambda match: f"{match[1] or match[2]}***@", text)
    return _NAMED.sub(r"\1***", text)
