"""Jobs of all kinds: the queue, leases, and how jobs end."""
