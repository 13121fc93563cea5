//! Header views and values of the protocols an IPsec gateway handles.
