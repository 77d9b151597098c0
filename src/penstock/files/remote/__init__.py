"""Lists the objects of object stores and HTTP servers, and reads them by ranged requests that are retried."""
