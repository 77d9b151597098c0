"""Lists and reads local and remote objects, decompresses them, and converts their encodings."""
