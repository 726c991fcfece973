"""Files of measurements, CSV, Parquet or FedScale's own, and what they cannot say."""
