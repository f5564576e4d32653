"""Tables against peers. Nothing here asserts; tests do."""
