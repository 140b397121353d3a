"""What leaves the library: exported policies and videos."""
