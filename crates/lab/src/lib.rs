//! Namespaces, virtual Ethernet and traffic for demos and tests.
