"""The two errors that users may see; any other exception is a bug and shows its traceback."""


class SesameError(Exception):
    """The work cannot be done. Exit code 1.

    The message is one sentence with the file, line or key, what was found, and the remedy.
    """

    exit_code = 1


class UsageError(SesameError):
    """The request is invalid; raised before any work starts. Exit code 2."""

    exit_code = 2
