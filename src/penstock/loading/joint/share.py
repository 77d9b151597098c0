"""Reads from the ledger what one process has done of a load by several hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.loading.claim.claims import client_name, host_name
from penstock.model.load.outcome import LoadShare
from penstock.server.ledger.members import list_members

if TYPE_CHECKING:
    from penstock.loading.steps.step import RunningLoad


def read_share(load: RunningLoad) -> LoadShare | None:
    """Return the share of this process, or None, with a warning, if the ledger cannot be read."""
    try:
        members = load.at_end(lambda connection: list_members(connection, load.tools.ledger.schema, load.load_id))
    except PenstockError as error:
        load.tools.notice(f"this host's share of the load was not counted: {error.message}")
        return None
    own = [each for each in members if each.client == client_name()]
    return LoadShare(
        host=host_name(),
        rows=sum(each.rows for each in own),
        objects=sum(each.objects for each in own),
        members=len({each.client for each in members if each.rows}),
    )
