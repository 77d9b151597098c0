"""Commands that watch a server and say what they saw."""
