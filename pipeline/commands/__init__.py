"""What the commands do, one file a kind of command."""
