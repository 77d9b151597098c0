"""Sessions of a load: COPY commands, batches, transactions, and waits for locks."""
