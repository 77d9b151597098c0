"""Values of a load: the user's request, the plan, the outcome, and the records of the ledger."""
