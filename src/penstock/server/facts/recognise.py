"""Recognises a server's product and its manager by marks. Pure.

What each mark proves, and the source:

* `rds.extensions` and role `rds_superuser`: Amazon RDS and Aurora (docs.aws.amazon.com, "Understanding the
  rds_superuser role"); `aurora_version()`, or `aurora_stat_utils` in rds.extensions: Aurora (AuroraPgDialect of
  aws/aws-advanced-jdbc-wrapper); rds_tools' multi_az_db_cluster_source_dbi_resource_id() that is not null: a Multi-AZ
  DB cluster (its RdsMultiAzDbClusterPgDialect).
* Roles `cloudsqlsuperuser`, `alloydbsuperuser`, `azure_pg_admin`, `supabase_admin`: what each service gives its
  customers or keeps for itself (cloud.google.com/sql/docs/postgres/users, cloud.google.com/alloydb/docs/database-users,
  learn.microsoft.com "Manage users in Azure Database for PostgreSQL", supabase.com/docs "Postgres Roles").
* `neon.timeline_id`: Neon (neondatabase/neon, pgxn/neon).
* `cnpg.config_sha256`, or /controller/manager in archive_command: CloudNativePG (its pkg/postgres/configuration.go).
* `cluster_name` and others given on the command line: Patroni, which passes them so that ALTER SYSTEM cannot change
  them (patroni.readthedocs.io, "PostgreSQL parameters controlled by Patroni"). Role `_crunchyrepl` is of Crunchy's
  operator (and of Percona's, made from it), `robot_zmon` of Zalando's Spilo image: both run Patroni.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.model.server.inspection import Flavour, FlavourKind, Manager, Mark

# The order matters: Aurora has RDS's marks too, and Citus runs on any of the others.
_FLAVOURS: tuple[tuple[tuple[str, str], FlavourKind, str], ...] = (
    (("function", "pg_catalog.aurora_version()"), "aurora", "Amazon Aurora"),
    (("setting", "rds.extensions with aurora_stat_utils"), "aurora", "Amazon Aurora"),
    (("cluster", "rds_tools"), "rds-cluster", "Amazon RDS Multi-AZ DB cluster"),
    (("setting", "rds.extensions"), "rds", "Amazon RDS"),
    (("role", "rds_superuser"), "rds", "Amazon RDS"),
    (("role", "alloydbsuperuser"), "alloydb", "Google AlloyDB"),
    (("role", "cloudsqlsuperuser"), "cloud-sql", "Google Cloud SQL"),
    (("setting", "azure.extensions"), "azure", "Azure Database for PostgreSQL"),
    (("role", "azure_pg_admin"), "azure", "Azure Database for PostgreSQL"),
    (("setting", "neon.timeline_id"), "neon", "Neon"),
    (("role", "supabase_admin"), "supabase", "Supabase"),
    (("extension", "citus"), "citus", "Citus"),
)

# Patroni always passes all of these. A single one may come from any `postgres -c`.
_PATRONI_SETTINGS = {"cluster_name", "hot_standby", "wal_level", "wal_log_hints"}

_PATRONI_CHANGE = "patronictl edit-config"


def recognise_flavour(marks: Collection[Mark], *, is_multi_az_cluster: bool = False) -> Flavour:
    """Return the server's product. `is_multi_az_cluster` is the answer of the extension rds_tools.

    >>> from penstock.model.server.inspection import Mark
    >>> recognise_flavour([Mark(kind="role", name="rds_superuser")]).name
    'Amazon RDS'
    """
    found = {(mark.kind, mark.name) for mark in marks}
    if is_multi_az_cluster:
        found.add(("cluster", "rds_tools"))
    for mark, kind, name in _FLAVOURS:
        if mark in found:
            return Flavour(kind=kind, name=name, told_by=" ".join(mark))
    return Flavour(kind="postgresql", name="PostgreSQL")


def recognise_managers(marks: Collection[Mark], *, cluster_name: str | None) -> tuple[Manager, ...]:
    """Return the software that also changes the server's settings.

    A hint names the cluster (setting `cluster_name`).
    """
    found = {(mark.kind, mark.name) for mark in marks}
    scope = f' (cluster "{cluster_name}")' if cluster_name else ""
    managers = [*_kubernetes(found, scope), *_patroni(marks, scope)]
    return tuple(managers)


def _kubernetes(found: set[tuple[str, str]], scope: str) -> Sequence[Manager]:
    commands = sorted(name for kind, name in found if kind == "command")
    if ("setting", "cnpg.config_sha256") in found or commands:
        told_by = ", ".join(commands) or "setting cnpg.config_sha256"
        change = "kubectl edit cluster, under .spec.postgresql.parameters"
        return [Manager(name=f"CloudNativePG{scope}", told_by=told_by, change=change)]
    if ("role", "_crunchyrepl") in found:
        change = "kubectl edit postgrescluster, under .spec.patroni.dynamicConfiguration"
        return [Manager(name=f"Crunchy Postgres for Kubernetes{scope}", told_by="role _crunchyrepl", change=change)]
    if ("role", "robot_zmon") in found:
        change = "kubectl edit postgresql, under .spec.postgresql.parameters"
        return [Manager(name=f"Zalando's operator or Spilo{scope}", told_by="role robot_zmon", change=change)]
    return []


def _patroni(marks: Collection[Mark], scope: str) -> Sequence[Manager]:
    given = {mark.name for mark in marks if mark.kind == "command line"}
    if not given >= _PATRONI_SETTINGS:
        return []
    told_by = f"{', '.join(sorted(given))} given on the server's command line"
    return [Manager(name=f"Patroni{scope}", told_by=told_by, change=_PATRONI_CHANGE)]
