"""The self-test: penstock's commands on a server of the user, and a report of what worked."""
