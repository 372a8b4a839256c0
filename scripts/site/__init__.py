"""The documentation as a site: `make site` (docs/decisions/0045-site.md)."""
