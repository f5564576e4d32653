"""Emitters of packs: copies to panels, and transforms of tiles, in whole vectors."""
