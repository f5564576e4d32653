"""Plans of whole models: asked for, made by a worker of the target once their jobs have ended.

Face: `asked.ask`, `rows.get`, `documents`.
"""
