"""Values of a load: what the user asked for, the plan, the outcome, and what the ledger records."""
