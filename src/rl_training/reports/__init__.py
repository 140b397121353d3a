"""What recorded runs say: statistics, tables and the report's page."""
