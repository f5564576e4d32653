"""A whole module with its ops packed in blocks, and packs between adjacent ops cancelled."""
