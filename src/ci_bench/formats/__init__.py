"""Other tools' files: one module each, that reads a text into series, writes series as a text, or both.

Pure: text in, values out. Nothing is evaluated, and a text may come from a stranger: its size, depth and counts are bounded.
What each format can hold, and what a conversion loses, is in docs/formats.md.
"""
