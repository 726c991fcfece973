"""A Flower app with scikit-learn: handwritten digits, logistic regression."""
