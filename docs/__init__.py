"""Pages for users and for contributors; `website` makes the static site of them."""
