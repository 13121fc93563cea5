//! Load processes against servers whose every answer is known, and the synchronisation server.

mod hub;
mod load;
mod server;
