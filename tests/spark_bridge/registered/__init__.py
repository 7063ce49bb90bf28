"""The registered data sources, read as Spark reads them, mostly without a session."""
