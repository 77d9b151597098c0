"""The commands of penstock, one module for each command."""
