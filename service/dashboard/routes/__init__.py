"""The routes of the dashboard."""
