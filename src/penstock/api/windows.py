"""Whether a load would meet a maintenance or backup window of RDS: asked only by loads whose duration is expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import AwsError
from penstock.loading.preflight_load import refuse_windows
from penstock.model.endpoints import is_rds_endpoint

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from penstock.errors import TargetError
    from penstock.server.connection import ConnectionFactory


def find_window_refusal(
    connect: ConnectionFactory, *, now: datetime, expected: timedelta
) -> TargetError | AwsError | None:
    """Return the error for a load that begins now and would meet a window, or why AWS does not tell all windows.

    None where it meets none, and for servers that are not RDS's. Waits for AWS 1.5 s at most. Raises ServerError.
    """
    with connect.borrow() as connection:
        host = connection.info.host
    if not is_rds_endpoint(host):
        return None
    from penstock.aws.quick import ask_windows  # noqa: PLC0415 (botocore is paid for by who asks AWS)

    found = ask_windows(host, now=now)
    return found if isinstance(found, AwsError) else refuse_windows(found, now=now, expected=expected)
