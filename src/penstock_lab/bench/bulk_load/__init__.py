"""The experiment on bulk loading: psql, COPY on the server and penstock, with and without its settings."""
