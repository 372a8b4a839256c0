"""Programs that build, check and show Cairn; not part of the installed package."""
