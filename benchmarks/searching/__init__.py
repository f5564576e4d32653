"""How well searches find."""
