"""Flavors of `tilewise script` that are made by the command, of several problems."""
