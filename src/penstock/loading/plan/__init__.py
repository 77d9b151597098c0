"""The plan of a load: what its files, its tables and the server make of the job."""
