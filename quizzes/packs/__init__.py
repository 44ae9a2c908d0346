"""Packs: reading and checking their files (the code), and the packs that come with the site (the folders)."""
