"""What a load will do, decided from its sources, its tables and the server before anything is changed."""
