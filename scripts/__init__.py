"""What builds, checks and shows Cairn; not part of the installed package."""
