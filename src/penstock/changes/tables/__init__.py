"""Changes at tables while a load runs: indexes and keys dropped, triggers disabled, autovacuum paused."""
