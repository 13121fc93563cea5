//! From site file to published snapshot; leases, status, reload.
//!
//! A running gateway does this besides moving packets:
//!
//! * [`site`] reads the TOML site file into a typed [`site::Site`], or tells every error in it;
//! * [`init`] writes a pair of such files to begin with;
//! * [`lease`] remembers across restarts which sequence numbers of a key were used;
//! * [`state`] makes of a site the picture that workers see, at start and at every reload;
//! * [`status`] tells how the gateway is doing, as types, JSON and text;
//! * [`event`] puts into words what workers tell of SAs;
//! * [`server`] and [`client`] are the two ends of the control socket, [`protocol`] what they say;
//! * [`folder`] finds what other users can change of a path, [`peer`] looks at who serves a socket that is asked;
//! * [`trace`](mod@trace) says what would become of a packet;
//! * [`metrics`] makes and serves a page for Prometheus;
//! * [`wireshark`] writes keys as Wireshark takes them;
//! * [`xfrm`] keeps what IKE daemons ask of a kernel, and serves them; served on a UNIX socket.
//!
//! Nothing here touches a packet or changes the host.
//!
//! ```
//! use convoy_control::site::Site;
//!
//! let errors = Site::load("no-such-site.toml".as_ref()).unwrap_err();
//! assert!(errors.to_string().starts_with("no-such-site.toml: cannot be read"));
//! ```
#![forbid(unsafe_code)]

mod acceptor;
pub mod client;
pub mod event;
pub mod folder;
#[doc(hidden)]
pub mod fuzzing;
mod held;
pub mod init;
pub mod lease;
pub mod metrics;
pub mod new_key;
pub mod peer;
mod place;
pub mod protocol;
pub mod server;
pub mod site;
pub mod sources;
pub mod state;
pub mod status;
mod throttle;
pub mod trace;
pub mod wireshark;
pub mod xfrm;
