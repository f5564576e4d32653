"""Words that threads share, on a cache line each: of a barrier, and of a thread pool's board."""

LINE_WORDS = 8
ARRIVED, PHASE = 0, LINE_WORDS
BARRIER_WORDS = 2 * LINE_WORDS
BARRIER_SPINS = 1 << 12  # then the core is offered to whoever keeps a thread from arriving
GENERATION, FUNCTION, PARTS = LINE_WORDS, 2 * LINE_WORDS, 3 * LINE_WORDS
"""Of a board; `PARTS` has one word for each helper. Its first line belongs to what is before it."""
