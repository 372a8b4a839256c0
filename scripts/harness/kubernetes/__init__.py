"""A real API server of Kubernetes, and stand-ins for what runs on its nodes."""
