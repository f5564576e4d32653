"""Whether what a worker sends fits the job that it was given.

Face: `JobWork`, `check_trial`, `check_answer`, `check_candidates`, `check_begin`, `checked_end`,
`known_machine`.
"""
