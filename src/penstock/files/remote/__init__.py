"""Objects of object stores and HTTP servers: how they are listed, read by ranged requests, and tried again."""
