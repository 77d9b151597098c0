"""A place for temporary work: decided, made and proved, checked, removed."""
