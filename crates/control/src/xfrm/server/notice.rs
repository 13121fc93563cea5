//! Messages to people about the processes that use the socket.

use convoy_xfrm::Group;

use crate::xfrm::Client;

/// Groups that IKE daemons need, and what they are called.
const DAEMONS: [(Group, &str); 2] = [(Group::Acquire, "acquire"), (Group::Expire, "expire")];

/// The groups that say that somebody is an IKE daemon, as a mask.
pub(super) const DAEMON_GROUPS: u32 = Group::Acquire.bit() | Group::Expire.bit();

/// Programs that listen to all groups and answer nothing: `ip xfrm monitor`.
const MONITORS: [&str; 1] = ["ip"];

/// Returns true if a process in these groups answers what it hears, as an IKE daemon does.
pub(super) fn is_daemon(client: &Client, groups: u32) -> bool {
    groups & DAEMON_GROUPS != 0 && !MONITORS.contains(&client.command.as_ref())
}

/// Tells that a process joined groups of daemons, and of another one that is in such groups.
pub(super) fn listens(client: &Client, groups: u32, other: Option<&Client>) {
    let names: Vec<&str> = DAEMONS
        .iter()
        .filter(|(group, _)| group.bit() & groups != 0)
        .map(|(_, name)| *name)
        .collect();
    let (who, names) = (named(client), names.join(", "));
    match other.filter(|_| is_daemon(client, groups)) {
        None => tracing::info!("{who} listens for {names}"),
        Some(other) => tracing::warn!(
            "{who} listens for {names}, and so does {}: both would answer the same events; stop one of them",
            named(other)
        ),
    }
}

/// The process, for people.
pub(super) fn named(client: &Client) -> String {
    format!("{} (pid {})", client.command, client.pid)
}
