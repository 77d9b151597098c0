"""`penstock rds`: commands for servers of Amazon RDS. Each command is a function in another module of this folder."""

from __future__ import annotations

import typer

from penstock.rds.command.certificates import certificates
from penstock.rds.command.prepare import prepare_s3_import
from penstock.rds.command.show import show

app = typer.Typer(
    help="Inspect Amazon RDS and Aurora: an instance, root certificates, imports from S3.",
    no_args_is_help=True,
    add_completion=False,
)
app.command()(show)
app.command()(certificates)
app.command()(prepare_s3_import)
