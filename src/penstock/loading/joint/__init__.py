"""One load by several hosts: who leads, which objects each has claimed, and when each is done."""
