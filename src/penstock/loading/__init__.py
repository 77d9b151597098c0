"""Plans and runs loads: from the job to the outcome."""
