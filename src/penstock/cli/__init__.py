"""The command line: finds a command and runs it; what the options and the output of commands have in common."""
