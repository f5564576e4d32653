"""How fast the service answers, and how large its database grows."""
