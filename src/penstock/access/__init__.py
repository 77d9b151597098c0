"""What stands in a load's way, found from a server's and AWS's description: values in, findings out."""
