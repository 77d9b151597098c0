"""Commands that watch a server and report what it does."""
