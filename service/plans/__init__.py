"""Plans of whole models: asked for, made by a worker of the target once their jobs have ended.

Face: `ask`, `get`, `head_json`, `plan_json`.
"""
