"""Renders the results of the commands of `penstock temp` as text and as objects for --json."""
