"""Decides which indexes and keys a load drops and rebuilds, and makes these and other changes at tables."""
