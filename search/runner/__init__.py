"""Where candidates run: killable processes that compile, check and time."""
