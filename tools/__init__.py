"""Programs for the people who work on npuc; nothing here is installed."""
