"""Sessions: COPY commands, batches, transactions, and who waits for whom."""
