"""From a script to machine code: apply, inspect, lower, compile."""
