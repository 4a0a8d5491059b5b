"""The two errors a user may see; everything else is a bug and shows its traceback."""


class SesameError(Exception):
    """Work could not be done: one sentence with file, line or key and the remedy. Exit code 1."""

    exit_code = 1


class UsageError(SesameError):
    """What was asked for makes no sense, found before any work. Exit code 2."""

    exit_code = 2
