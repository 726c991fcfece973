"""Where data sets come from: files, downloads, formulas, your own functions."""
