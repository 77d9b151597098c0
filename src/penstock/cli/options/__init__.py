"""The options and arguments of commands: those declared in penstock.model, and others that several commands share."""
