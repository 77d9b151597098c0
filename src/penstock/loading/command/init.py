"""`penstock init`: creates a ledger that several roles share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.options import LEDGER, Json, open_ledger, takes
from penstock.cli.output import write_result
from penstock.core.values.job import Housekeeping
from penstock.core.values.options import join_lists, pick, split_names
from penstock.core.values.server import describe_server
from penstock.loading.views.outcome import server_object

Grant = Annotated[
    list[str] | None,
    typer.Option(
        "--grant", metavar="ROLE[,ROLE]", help="Let these roles record their loads in it. May be given several times."
    ),
]
Plan = Annotated[bool, typer.Option("--plan", help="Print the statements, and do nothing.")]

Upgrade = Annotated[
    bool, typer.Option("--upgrade", help="Upgrade a ledger that an older penstock created, and end its running loads.")
]


@takes((*LEDGER, "publish_ledger"))
def init(
    grant: Grant = None, upgrade: Upgrade = False, plan: Plan = False, as_json: Json = False, **options: Any
) -> None:
    """Create the ledger as the database's owner, for several roles. Keep what exists.

    Each role sees all loads, and row-level security lets it change only its own. To resume or forget a load of another
    role, a role must be a member of it. Run it as the database's owner, a member of that role, or a superuser.
    """
    house = Housekeeping(**pick(Housekeeping, options))
    granted = join_lists(grant)
    roles = () if granted is None else split_names(granted)
    with open_ledger(options) as view:
        statements = view.share(roles, is_publishing_allowed=house.publish_ledger, upgrades=upgrade, only_planned=plan)
        server = view.server()
    if as_json:
        result = server_object(server) | {"schema": house.ledger_schema}
        write_result(result | {"roles": roles, "statements": statements, "is_planned": plan})
    elif plan:
        write_result(["BEGIN;", *(f"{statement};" for statement in statements), "COMMIT;"])
    else:
        receivers = f", granted to {', '.join(roles)}" if roles else ""
        on_server = describe_server(server.name, server.database)
        write_result(f"the ledger is ready in schema {house.ledger_schema}{on_server}{receivers}")
