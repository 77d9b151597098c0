"""What limited a workload or a load: rules over recordings and counts, with evidence and remedies. Pure."""
