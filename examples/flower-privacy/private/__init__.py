"""The quickstart's app, with privacy budgets."""
