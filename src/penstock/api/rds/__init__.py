"""Functions for servers of Amazon RDS: AWS's description, access, a load's plan for the instance, snapshot exports."""
