"""Charts as values: the HTML report and the picture files draw the same ones. No drawing here."""
