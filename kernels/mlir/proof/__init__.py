"""Whether a script works: applied, run, compared and timed in a child (`prove.prove`, `verify`)."""
