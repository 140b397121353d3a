"""One file here is one command; `rl_training.cli.parser` says what it has."""
