"""The web dashboard: pages, their assets, and live updates.

Pages are complete without scripts; scripts add live updates and plots. Nothing is loaded from other
hosts.
"""
