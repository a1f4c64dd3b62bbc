"""The command line: arguments, operations, text for people."""
