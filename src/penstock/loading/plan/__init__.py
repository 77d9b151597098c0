"""Plans a load: decides from the job, its files, its tables and the server what the load will do."""
