"""The loop of a search, an Optuna study: propose, try, store, and the final benchmark."""
