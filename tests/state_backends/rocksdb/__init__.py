"""The real RocksDB as a store and as a state backend; needs the package of the extra."""
