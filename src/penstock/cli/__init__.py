"""The command line: arguments, progress, what is printed, exit codes; one file per command.

Whatever it shows comes from values that the rooms below return; nothing is decided here but how to say it.
"""
