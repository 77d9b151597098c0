"""What penstock temp prints."""
