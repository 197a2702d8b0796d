"""Executes the records of an image on byte-accurate memory."""
