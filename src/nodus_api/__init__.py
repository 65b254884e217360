"""Nodus API: places, drives, bills and serves Attempts."""
