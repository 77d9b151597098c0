"""What recordings mean: who was active, what was waited for, what limits. Pure: values in, values out."""
