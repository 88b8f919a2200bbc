//! Pure computation for Assay's hot paths.
