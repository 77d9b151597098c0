"""Objects of object stores and HTTP servers: listing, reading by ranged requests, and retries."""
