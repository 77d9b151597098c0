"""The experiment on commits: how long inserts take by the rows of a transaction."""
