"""The command line: arguments, help, and one file per kind of command.

May use every room.
"""
