"""A module as a whole: its ops packed in blocks, and packs cancelled along the edges between them.

Face: `pack_module`, `prove_packs`, `prove_layers`, `PackPlan`, `Blocks`, `OpBlocks`.
"""
