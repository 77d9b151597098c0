"""The command line: finds a command and runs it. Has what commands share: options, output and exit codes."""
