"""Other publish/subscribe servers, and one client for them and for PostgreSQL."""
