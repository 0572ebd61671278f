"""What runs of a branch measured over months: kept, compacted, looked through for changes, shown on a page."""
