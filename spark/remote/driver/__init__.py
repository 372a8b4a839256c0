"""What the driver of a server does at each look, beside serving: what it sees, and what it ends."""
