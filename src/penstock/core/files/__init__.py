"""Where bytes come from: listing, reading, decompression and encodings of local and remote objects."""
