"""The HTML report: one file that needs no network. `page` is the shell, which other pages share."""
