"""A zoo of tables with every kind of index, key and constraint, and a description that shows if one has changed.

All have columns id, a and b, which are loaded; what other columns hold is made from them.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import psycopg

from support.servers import installed

if TYPE_CHECKING:
    from pathlib import Path

    from support.loads import Row
    from support.servers import PgServer

# Statements by the version from which on the server knows them; @ stands for the columns that are loaded.
ZOO = {
    14: """
        CREATE TABLE parent (@, PRIMARY KEY (id), CONSTRAINT parent_a UNIQUE (a), UNIQUE (id, a));
        CREATE TABLE plain (@);
        CREATE INDEX ON plain (a);
        CREATE TABLE key (@, PRIMARY KEY (id));
        CREATE TABLE key_include (@, PRIMARY KEY (id) INCLUDE (b) WITH (fillfactor = 70));
        CREATE TABLE uniq (@, UNIQUE (a), CONSTRAINT two UNIQUE (b, id));
        CREATE TABLE uniq_index (@);
        CREATE UNIQUE INDEX ON uniq_index (a, b);
        CREATE TABLE deferred (@, PRIMARY KEY (id) DEFERRABLE, UNIQUE (a) DEFERRABLE INITIALLY DEFERRED);
        CREATE TABLE hashed (@);
        CREATE INDEX ON hashed USING hash (b) WITH (fillfactor = 60);
        CREATE TABLE gin_array (@, t int[] GENERATED ALWAYS AS (ARRAY[id, a]) STORED);
        CREATE INDEX ON gin_array USING gin (t);
        CREATE TABLE gin_text (@, t tsvector GENERATED ALWAYS AS (to_tsvector('simple', b)) STORED);
        CREATE INDEX ON gin_text USING gin (t) WITH (fastupdate = off);
        CREATE TABLE gist_range (@, r int4range GENERATED ALWAYS AS (int4range(id, id + 3)) STORED);
        CREATE INDEX ON gist_range USING gist (r);
        CREATE TABLE gist_point (@, p point GENERATED ALWAYS AS (point(id, a)) STORED);
        CREATE INDEX ON gist_point USING gist (p) WITH (buffering = on);
        CREATE TABLE gist_options (@, t tsvector GENERATED ALWAYS AS (to_tsvector('simple', b)) STORED);
        CREATE INDEX ON gist_options USING gist (t tsvector_ops (siglen = 100));
        CREATE TABLE brin (@);
        CREATE INDEX ON brin USING brin (a) WITH (pages_per_range = 4, autosummarize = on);
        CREATE INDEX ON brin USING brin (id int4_minmax_multi_ops (values_per_range = 16));
        CREATE TABLE spgist (@);
        CREATE INDEX ON spgist USING spgist (b);
        CREATE TABLE partial (@);
        CREATE INDEX ON partial (a) WHERE b <> 'x' AND id > 3;
        CREATE UNIQUE INDEX ON partial (id) WHERE a > 2;
        CREATE TABLE expression (@);
        CREATE INDEX odd ON expression (lower(b), (a + 1), id);
        ALTER INDEX odd ALTER COLUMN 2 SET STATISTICS 333;
        ALTER INDEX odd ALTER COLUMN 1 SET STATISTICS 0;
        CREATE TABLE including (@);
        CREATE INDEX ON including (a) INCLUDE (b, id);
        CREATE TABLE descending (@);
        CREATE INDEX ON descending (a DESC, b NULLS FIRST, id DESC NULLS LAST);
        CREATE TABLE collated (@);
        CREATE INDEX ON collated (b COLLATE "C", b);
        CREATE TABLE opclass (@);
        CREATE INDEX ON opclass (b text_pattern_ops, lower(b) text_pattern_ops);
        CREATE TABLE stored (@) WITH (fillfactor = 80, autovacuum_enabled = off);
        CREATE INDEX ON stored (a) WITH (fillfactor = 50, deduplicate_items = off);
        CREATE TABLE excluding (@, r int4range GENERATED ALWAYS AS (int4range(id, id + 1)) STORED, EXCLUDE USING
            gist (r WITH &&) WITH (fillfactor = 75));
        CREATE TABLE excluding_some (@, r int4range GENERATED ALWAYS AS (int4range(id, id + 1)) STORED,
            CONSTRAINT apart EXCLUDE USING gist (r WITH &&, (point(id, a)) WITH ~=) WHERE (id > 2) DEFERRABLE);
        COMMENT ON CONSTRAINT apart ON excluding_some IS 'kept apart';
        CREATE TABLE child (@, FOREIGN KEY (id) REFERENCES parent ON DELETE CASCADE ON UPDATE SET DEFAULT);
        CREATE INDEX ON child (id);
        CREATE TABLE child_full (@, CONSTRAINT fully FOREIGN KEY (id, a) REFERENCES parent (id, a) MATCH FULL ON
            DELETE SET NULL ON UPDATE RESTRICT DEFERRABLE INITIALLY DEFERRED);
        COMMENT ON CONSTRAINT fully ON child_full IS 'refers fully';
        CREATE TABLE child_unchecked (@);
        ALTER TABLE child_unchecked ADD FOREIGN KEY (a) REFERENCES parent (a) NOT VALID;
        CREATE TABLE itself (@, PRIMARY KEY (id), FOREIGN KEY (id) REFERENCES itself DEFERRABLE);
        CREATE TABLE circle_1 (@, PRIMARY KEY (id));
        CREATE TABLE circle_2 (@, PRIMARY KEY (id), FOREIGN KEY (id) REFERENCES circle_1 DEFERRABLE INITIALLY
            DEFERRED);
        ALTER TABLE circle_1 ADD FOREIGN KEY (id) REFERENCES circle_2 DEFERRABLE INITIALLY DEFERRED;
        CREATE TABLE parted (@, PRIMARY KEY (id), UNIQUE (id, a)) PARTITION BY RANGE (id);
        CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (50);
        CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (50) TO (MAXVALUE) PARTITION BY HASH (id);
        CREATE TABLE parted_3 PARTITION OF parted_2 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE parted_4 PARTITION OF parted_2 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
        CREATE INDEX parted_b ON parted (b);
        CREATE INDEX own ON parted_1 (a);
        CREATE TABLE of_parted (@, FOREIGN KEY (id) REFERENCES parted);
        CREATE TABLE parted_to (FOREIGN KEY (id) REFERENCES parent, @) PARTITION BY LIST (a);
        CREATE TABLE parted_to_1 PARTITION OF parted_to DEFAULT;
        CREATE TABLE tree (@, CONSTRAINT tree_key PRIMARY KEY (id) WITH (fillfactor = 71), UNIQUE (id, a) DEFERRABLE
            INITIALLY DEFERRED, CONSTRAINT to_parent FOREIGN KEY (a) REFERENCES parent (a) ON DELETE CASCADE
            DEFERRABLE) PARTITION BY RANGE (id);
        CREATE TABLE tree_1 PARTITION OF tree FOR VALUES FROM (MINVALUE) TO (10);
        CREATE TABLE tree_2 (b text, gone int, a int, id int NOT NULL, CONSTRAINT "another ""key"" %s" PRIMARY KEY
            (id), CONSTRAINT refers FOREIGN KEY (a) REFERENCES parent (a) ON DELETE CASCADE DEFERRABLE);
        ALTER TABLE tree_2 DROP gone;
        CREATE INDEX of_its_own ON tree_2 (b text_pattern_ops) WITH (fillfactor = 60) TABLESPACE zoo_space;
        CREATE INDEX its_b ON tree_2 (lower(b), a) WHERE a > 3;
        ALTER TABLE tree_2 ADD CONSTRAINT more_than_needed UNIQUE (id, b) WITH (fillfactor = 88);
        ALTER TABLE tree ATTACH PARTITION tree_2 FOR VALUES FROM (10) TO (20);
        CREATE TABLE tree_3 PARTITION OF tree FOR VALUES FROM (20) TO (30) PARTITION BY LIST (id);
        CREATE TABLE "Tree 3 a" PARTITION OF tree_3 FOR VALUES IN (21, 22, 23);
        CREATE TABLE tree_3_b PARTITION OF tree_3 DEFAULT PARTITION BY HASH (id);
        CREATE TABLE tree_3_b_1 PARTITION OF tree_3_b FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE tree_3_b_2 PARTITION OF tree_3_b FOR VALUES WITH (MODULUS 2, REMAINDER 1);
        CREATE TABLE tree_4 PARTITION OF tree DEFAULT;
        CREATE INDEX tree_b ON tree (lower(b), a) WHERE a > 3;
        CREATE INDEX tree_same_1 ON tree (a DESC) INCLUDE (b) WITH (fillfactor = 66);
        CREATE INDEX tree_same_2 ON tree (a DESC) INCLUDE (b);
        CREATE INDEX tree_brin ON tree USING brin (a) TABLESPACE zoo_space;
        CREATE INDEX tree_gin ON tree USING gin (to_tsvector('simple', b));
        CREATE INDEX tree_hash ON tree USING hash (b);
        CREATE UNIQUE INDEX tree_unique ON tree (id, b);
        CREATE INDEX sub_own ON tree_3 (b, id);
        CREATE UNIQUE INDEX sub_unique ON tree_3 (a, id);
        CREATE INDEX leaf_own ON tree_4 ((a + 1));
        ALTER TABLE tree_4 ADD CONSTRAINT leaf_key UNIQUE (a), ADD CONSTRAINT leaf_to FOREIGN KEY (id) REFERENCES
            parent (id);
        ALTER INDEX tree_1_pkey RENAME TO one;
        ALTER INDEX tree_1_lower_a_idx ALTER COLUMN 1 SET STATISTICS 77;
        ALTER INDEX tree_b ALTER COLUMN 1 SET STATISTICS 99;
        ALTER INDEX tree_3_b_1_lower_a_idx ALTER COLUMN 1 SET STATISTICS 88;
        ALTER INDEX tree_1_a_b_idx SET (fillfactor = 44);
        ALTER INDEX tree_3_b_1_a_b_idx SET TABLESPACE zoo_space;
        ALTER TABLE tree_1 CLUSTER ON tree_1_a_b_idx;
        ALTER TABLE tree_4 CLUSTER ON leaf_own;
        ALTER TABLE tree ALTER a SET NOT NULL;
        ALTER TABLE tree_3 REPLICA IDENTITY USING INDEX sub_unique;
        ALTER TABLE tree_3_b_2 REPLICA IDENTITY USING INDEX tree_3_b_2_a_id_idx;
        COMMENT ON INDEX tree_b IS 'of all';
        COMMENT ON INDEX tree_1_lower_a_idx IS 'of one';
        COMMENT ON CONSTRAINT tree_key ON tree IS 'key';
        COMMENT ON CONSTRAINT "another ""key"" %s" ON tree_2 IS 'key of one';
        COMMENT ON CONSTRAINT to_parent ON tree IS 'refers';
        COMMENT ON CONSTRAINT refers ON tree_2 IS 'one refers';
        CREATE TABLE to_leaf (@, c int GENERATED ALWAYS AS (30 + id % 10) STORED REFERENCES tree_4 (a));
        CREATE TABLE up (@, PRIMARY KEY (id));
        CREATE TABLE down (c int DEFAULT 1, UNIQUE (a)) INHERITS (up);
        CREATE INDEX ON up (b);
        CREATE INDEX ON down (b);
        CREATE TABLE identity (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, a int, b text, s serial
            UNIQUE);
        CREATE TABLE commented (@, CONSTRAINT k PRIMARY KEY (id));
        CREATE INDEX i ON commented (a);
        COMMENT ON INDEX i IS 'index, 100 %';
        COMMENT ON INDEX k IS 'of a key';
        COMMENT ON CONSTRAINT k ON commented IS 'a key';
        COMMENT ON TABLE commented IS 't';
        CREATE TABLE elsewhere (@, PRIMARY KEY (id) USING INDEX TABLESPACE zoo_space, EXCLUDE USING hash (a WITH
            =) USING INDEX TABLESPACE zoo_space);
        CREATE INDEX ON elsewhere (b) TABLESPACE zoo_space;
        CREATE TABLE clustered (@);
        CREATE INDEX c ON clustered (a);
        ALTER TABLE clustered CLUSTER ON c;
        CREATE TABLE clustered_key (@, PRIMARY KEY (id));
        ALTER TABLE clustered_key CLUSTER ON clustered_key_pkey;
        CREATE TABLE identified (@);
        CREATE UNIQUE INDEX who ON identified (id);
        ALTER TABLE identified ALTER id SET NOT NULL;
        ALTER TABLE identified REPLICA IDENTITY USING INDEX who;
        CREATE TABLE published (@, PRIMARY KEY (id));
        CREATE INDEX ON published (a);
        CREATE PUBLICATION zoo FOR TABLE published;
        CREATE TABLE broken (@);
        CREATE INDEX half ON broken (a);
        CREATE INDEX whole ON broken (b);
        UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'half'::regclass;
        CREATE TABLE viewed (@, PRIMARY KEY (id), UNIQUE (a));
        CREATE VIEW grouped AS SELECT id, b FROM viewed GROUP BY id;
        CREATE TABLE "Odd ""one"" %s {}" (@, CONSTRAINT "k ON x" PRIMARY KEY (id), CONSTRAINT "f ;--" FOREIGN
            KEY (a) REFERENCES parent (a));
        CREATE INDEX "i %% ""q"" i" ON "Odd ""one"" %s {}" ((b || '%s {}"'));
        CREATE UNLOGGED TABLE unlogged (@, PRIMARY KEY (id));
        CREATE INDEX ON unlogged (a);
        CREATE TABLE watched (@, PRIMARY KEY (id));
        CREATE INDEX ON watched (b);
        CREATE STATISTICS st ON a, b FROM watched;
        CREATE RULE r AS ON DELETE TO watched DO ALSO NOTHING;
        CREATE TRIGGER tr BEFORE UPDATE ON watched FOR EACH ROW EXECUTE FUNCTION
            suppress_redundant_updates_trigger();
        CREATE TABLE many (@, PRIMARY KEY (id), UNIQUE (a));
        CREATE INDEX ON many (b);
        CREATE INDEX ON many (b, a);
        CREATE INDEX ON many (a, b);
        CREATE INDEX ON many ((a % 7));
        CREATE INDEX ON many USING hash (a);
        CREATE TABLE muted (@, FOREIGN KEY (id) REFERENCES parent);
        ALTER TABLE muted DISABLE TRIGGER ALL;
        CREATE TABLE checked (@, CHECK (a > 0), CHECK (b <> '') NO INHERIT, UNIQUE (a));
        ALTER TABLE checked ADD CHECK (id > 0) NOT VALID;
        ALTER TABLE checked ALTER b SET NOT NULL;
    """,
    15: """
        CREATE TABLE nulls (@, UNIQUE NULLS NOT DISTINCT (a));
        CREATE UNIQUE INDEX ON nulls (id, a) NULLS NOT DISTINCT;
        ALTER TABLE tree ADD CONSTRAINT tree_nulls UNIQUE NULLS NOT DISTINCT (b, id) INCLUDE (a) WITH (fillfactor = 55);
        CREATE UNIQUE INDEX tree_nulls_2 ON tree (b, a, id) NULLS NOT DISTINCT;
        CREATE TABLE child_some (@, FOREIGN KEY (id, a) REFERENCES parent (id, a) ON DELETE SET NULL (a));
    """,
    18: """
        CREATE TABLE unenforced (@, PRIMARY KEY (id), FOREIGN KEY (id) REFERENCES parent NOT ENFORCED,
            CONSTRAINT own FOREIGN KEY (id) REFERENCES unenforced NOT ENFORCED);
        CREATE TABLE temporal (@, r int4range GENERATED ALWAYS AS (int4range(id, id + 1)) STORED, z int4range
            GENERATED ALWAYS AS (int4range(a, a + 1)) STORED, PRIMARY KEY (z, r WITHOUT OVERLAPS));
        CREATE TABLE in_time (@, r int4range GENERATED ALWAYS AS (int4range(id, id + 1)) STORED, z int4range
            GENERATED ALWAYS AS (int4range(a, a + 1)) STORED, FOREIGN KEY (z, PERIOD r) REFERENCES temporal (z,
            PERIOD r));
        CREATE TABLE tree_apart (@, CONSTRAINT tree_apart_x EXCLUDE USING hash (id WITH =)) PARTITION BY HASH (id);
        CREATE TABLE tree_apart_1 PARTITION OF tree_apart FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE tree_apart_2 PARTITION OF tree_apart FOR VALUES WITH (MODULUS 2, REMAINDER 1);
        CREATE TABLE tree_loose (@) PARTITION BY HASH (id);
        CREATE TABLE tree_loose_1 PARTITION OF tree_loose FOR VALUES WITH (MODULUS 1, REMAINDER 0);
        ALTER TABLE tree_loose ADD FOREIGN KEY (a) REFERENCES parent (a) NOT VALID, ADD FOREIGN KEY (id) REFERENCES
            parent NOT ENFORCED;
        CREATE TABLE virtual (@, v int GENERATED ALWAYS AS (a + 1) VIRTUAL, PRIMARY KEY (id));
        CREATE INDEX ON virtual (a);
        ALTER TABLE virtual ADD CONSTRAINT has_b NOT NULL b NOT VALID;
    """,
}

# What pg_dump skips or does not show.
_ATTRIBUTES = """
    SELECT n.nspname, t.relname, t.relreplident::text, t.relhasindex, c.relname, i.indisvalid, i.indisready,
           i.indisclustered, i.indisreplident, i.indisprimary, i.indimmediate, i.indnullsdistinct, s.spcname,
           c.reloptions::text, pg_get_userbyid(c.relowner), c.relpersistence::text,
           (SELECT array_agg(coalesce(a.attstattarget, -1) ORDER BY a.attnum) FROM pg_attribute AS a
             WHERE a.attrelid = c.oid)::text,
           (SELECT x.relname FROM pg_inherits AS h JOIN pg_class AS x ON x.oid = h.inhparent WHERE h.inhrelid = c.oid)
      FROM pg_class AS t
      JOIN pg_namespace AS n ON n.oid = t.relnamespace AND n.nspname = 'zoo'
      JOIN pg_index AS i ON i.indrelid = t.oid
      JOIN pg_class AS c ON c.oid = i.indexrelid
      LEFT JOIN pg_tablespace AS s ON s.oid = c.reltablespace
     ORDER BY t.relname, c.relname
"""
# Two flags come out otherwise where a partition's keys are made and attached than where they come with the partition:
# see docs/decisions/0013.
_CONSTRAINTS = """
    SELECT t.relname, k.conname, k.contype::text, k.condeferrable, k.condeferred, k.convalidated, k.coninhcount,
           k.conislocal OR (k.contype = 'n' AND t.relispartition), k.connoinherit OR k.conparentid <> 0,
           x.relname, pg_get_constraintdef(k.oid), obj_description(k.oid),
           (SELECT array_agg(g.tgenabled::text ORDER BY g.tgrelid::regclass::text, g.tgfoid) FROM pg_trigger AS g
             WHERE g.tgconstraint = k.oid)::text
      FROM pg_constraint AS k
      JOIN pg_class AS t ON t.oid = k.conrelid
      JOIN pg_namespace AS n ON n.oid = t.relnamespace AND n.nspname = 'zoo'
      LEFT JOIN pg_class AS x ON x.oid = k.conindid
     ORDER BY t.relname, k.conname
"""


def make_zoo(pg: PgServer, conninfo: str) -> list[str]:
    """Make the zoo of the server's version; return the tables to load, as SQL spells them."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        if not connection.execute("SELECT FROM pg_tablespace WHERE spcname = 'zoo_space'").fetchall():
            connection.execute("SET allow_in_place_tablespaces = on")
            connection.execute("CREATE TABLESPACE zoo_space LOCATION ''")
        connection.execute("CREATE SCHEMA zoo; SET search_path = zoo")
        for since, statements in ZOO.items():
            if pg.major >= since:
                connection.execute(statements.replace("@", "id int, a int, b text").encode())
        rows = connection.execute(
            "SELECT format('%I.%I', 'zoo', relname) FROM pg_class WHERE relnamespace = 'zoo'::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY oid"
        ).fetchall()
    return [name for (name,) in rows]


def can_describe(pg: PgServer) -> bool:
    """Return whether a pg_dump exists here that can read the server: the server's own or a later version's."""
    return pg.server is not None and _find_pg_dump(pg) is not None


def _find_pg_dump(pg: PgServer) -> Path | None:
    found = [
        path for major, here in sorted(installed().items()) for path in [here.bin_dir / "pg_dump"] if major >= pg.major
    ]
    assert pg.server is not None
    own = pg.server.spec.installation.bin_dir / "pg_dump"
    return next((path for path in (own, *found) if path.exists()), None)


def describe_schema(pg: PgServer, conninfo: str) -> tuple[list[str], list[Row], list[Row]]:
    """Return all that shows whether schema `zoo` is as it was."""
    program = str(_find_pg_dump(pg))
    done = subprocess.run([program, "--schema-only", "-n", "zoo", "-d", conninfo], capture_output=True, check=True)
    # Newer ones guard their output by a word that is another each time.
    lines = [line for line in done.stdout.decode().splitlines() if not line.startswith(("\\restrict", "\\unrestrict"))]
    attributes = _ATTRIBUTES if pg.major >= 15 else _ATTRIBUTES.replace("i.indnullsdistinct", "true")
    attributes = attributes.replace("i.indnullsdistinct", "i.indnullsnotdistinct")
    with psycopg.connect(conninfo) as connection:
        return lines, connection.execute(attributes.encode()).fetchall(), connection.execute(_CONSTRAINTS).fetchall()
