"""The `nugget` command, one file per sub-command."""
