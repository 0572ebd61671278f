"""Measurements of a branch over months: kept, compacted, searched for changes, shown on a page."""
