"""The command line: finds a command and runs it. It has the options, output and exit codes of all commands."""
