"""What the dashboard costs: its pages over a large store, and its streams beside what is timed."""
