//! Who asks: a tenant and a subject, from verified identity only.
