-- sequence.sql: the definition and last value of a sequence, as far as this role may see them
-- returns loading.steps.sequences.SequenceRow; needs no privilege, USAGE or SELECT for last_value; PostgreSQL 14+
-- psql -v sequence=public.t_id_seq -f sequence.sql
--
-- last_value is null for other roles, and if nextval has never been called.
SELECT s.seqrelid AS oid,
       s.seqincrement AS increment,
       s.seqmin AS minimum,
       s.seqmax AS maximum,
       s.seqstart AS start,
       pg_catalog.has_sequence_privilege(s.seqrelid, 'UPDATE') AS can_set,
       pg_catalog.has_sequence_privilege(s.seqrelid, 'USAGE, SELECT') AS can_read,
       CASE
           WHEN pg_catalog.has_sequence_privilege(s.seqrelid, 'USAGE, SELECT')
           THEN pg_catalog.pg_sequence_last_value(s.seqrelid)
       END AS last_value
  FROM pg_catalog.pg_sequence AS s
 WHERE s.seqrelid = :'sequence'::regclass;
