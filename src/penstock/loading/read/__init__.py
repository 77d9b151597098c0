"""Objects read as blocks of records, and the queue from which sessions take them."""
