"""How well times are taken."""
