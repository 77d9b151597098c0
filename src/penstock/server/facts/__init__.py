"""The facts of a server and its settings, read with an ordinary user's rights."""
