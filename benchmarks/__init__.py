"""Questions about speed, one file each, run by hand: see README.md."""
