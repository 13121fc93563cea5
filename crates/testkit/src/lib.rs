//! Development only: packet builders, vectors, slow models.
