"""Functions for servers of Amazon RDS: AWS's description, access, and adapting a load's plan to the instance."""
