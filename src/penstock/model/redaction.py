"""Words without the secrets that connection strings and signed URLs hold. Pure.

A last line of defence for text that a user typed in the wrong place and that a message repeats: what is known to hold a
secret is left out where it is known.
"""

from __future__ import annotations

import re

# User and password of a PostgreSQL URI, in which people forget to encode slashes, and of any other URL. Both also where
# a slash is missing. What follows a URL's first slash is a path, in which @ may stand.
_USERINFO = re.compile(r"""(\bpostgres(?:ql)?:/*)[^\s"']*@|(\b[a-z][a-z0-9+.-]*:/+)[^\s"'/]*@""", re.IGNORECASE)

# password='two words' of a connection string, which may have blanks around the sign; X-Amz-Signature=... of a signed
# URL, sig=... of Azure's.
_NAMED = re.compile(
    r"""\b((?:[\w.-]*(?:password|passwd|signature|token|secret|credential)|sig)\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&"']+)""",
    re.IGNORECASE,
)


def hide_secrets(text: str) -> str:
    """Return a text with what looks like a secret replaced by three asterisks.

    >>> hide_secrets('no command "postgresql://ann:p/w@db1/shop?sslpassword=x"')
    'no command "postgresql://***@db1/shop?sslpassword=***"'
    >>> hide_secrets("s3://bucket/a@b.csv, https://host/a?X-Amz-Signature=0f&x=1")
    's3://bucket/a@b.csv, https://host/a?X-Amz-Signature=***&x=1'
    """
    text = _USERINFO.sub(lambda match: f"{match[1] or match[2]}***@", text)
    return _NAMED.sub(r"\1***", text)
