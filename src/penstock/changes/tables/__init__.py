"""Changes tables while a load runs: drops indexes and keys, disables triggers, pauses autovacuum; and restores them."""
