"""Objects are proven, and wrong ones are not."""
