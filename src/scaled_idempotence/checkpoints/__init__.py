"""Where factors come from: layouts, one reader a file format, and the bundled models."""
