"""Steps of IREE's own schedules."""
