"""What a server is, read with an ordinary user's rights; its settings."""
