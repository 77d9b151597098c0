"""Which indexes and keys a load drops and rebuilds, and what else it changes at tables."""
