//! Making a TUN device that no stranger can join.
//!
//! `/dev/net/tun` is open to all, and a device has no owner until it is given one: in between a process that knows
//! its name can open queues of it. So it is made where no process can name it, and gets its name when it has its
//! owner.

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{Error, ErrorKind};
use std::os::fd::AsFd as _;
use std::thread;
use std::time::Duration;

use convoy_host::{HostError, LinkName, Netns, Network, TunState};

use super::config::{Named, attach, open_queue};
use crate::{IoError, sys};

/// Step that fails when another process joins every device while it is made.
pub const JOINED: &str = "make a tun device that no other process attaches to";
/// Number of times that a device is made anew that another process joined.
const ATTEMPTS: usize = 100;

/// True if there is an interface of this name in the namespace of the calling thread.
pub(super) fn exists(name: &str) -> Result<bool, IoError> {
    let step = IoError::setup("look for the tun device");
    let Ok(name) = LinkName::new(name) else { return Ok(false) };
    match Network::open().and_then(|mut network| network.link(&name)) {
        Ok(_) => Ok(true),
        Err(HostError::NoSuchLink { .. }) => Ok(false),
        Err(error) => Err(step(error.into_io())),
    }
}

/// Makes a device and opens its first queue; `name` becomes what it is called.
///
/// # Errors
/// [`IoError::Setup`].
pub(super) fn make(name: &mut sys::DeviceName) -> Result<File, IoError> {
    let made = match hidden()? {
        Some(made) => made,
        None => in_sight(|| open_queue(&disguise()?))?,
    };
    rename(made, name)
}

/// Makes a device again out of a descriptor whose device was removed, and gives it the name of that.
///
/// # Errors
/// [`IoError::Setup`], also where another device has the name.
pub(super) fn make_of(queue: &File, name: &mut sys::DeviceName) -> Result<File, IoError> {
    let step = "use a queue of the tun device again";
    let again = || {
        let queue = queue.try_clone().map_err(IoError::setup(step))?;
        sys::tun_any_index(queue.as_fd()).map_err(IoError::setup(step))?;
        attach(queue, &disguise()?)
    };
    rename(in_sight(again)?, name)
}

/// Gives a device its name.
fn rename(made: Named, name: &mut sys::DeviceName) -> Result<File, IoError> {
    let mut network = Network::open().map_err(refused("name the tun device"))?;
    let index = index(&mut network, &made.name)?;
    network.rename(index, name.as_str()).map_err(refused("name the tun device"))?;
    let now = network.link_by_index(index).map_err(refused("name the tun device"))?;
    let now = now.ok_or_else(gone)?;
    *name = sys::DeviceName::new(&now.name)?;
    Ok(made.queue)
}

/// Makes a device in a network namespace of its own, from which it moves to the caller's once it has an
/// owner; none where no namespace may be made.
fn hidden() -> Result<Option<Named>, IoError> {
    let step = "hand the tun device over";
    let home = Netns::current().map_err(refused(step))?;
    let work = || {
        let made = open_queue(&disguise()?)?;
        let mut network = Network::open().map_err(refused(step))?;
        let index = index(&mut network, &made.name)?;
        network.hand_over(index, &home).map_err(refused(step))?;
        Ok(made)
    };
    match Netns::private(work) {
        Ok(made) => made.map(Some),
        Err(HostError::MakeNamespace { .. }) => Ok(None),
        Err(error) => Err(refused(step)(error)),
    }
}

/// Makes devices of names that no process knows before they are there, until one is as it was made: ours, and
/// with no stranger's queue. One who had a queue for a moment could have made himself the owner, or had the
/// device stay; who has none and is not the owner can do neither, so none can come later.
fn in_sight(mut make: impl FnMut() -> Result<Named, IoError>) -> Result<Named, IoError> {
    for _ in 0..ATTEMPTS {
        let made = make()?;
        let mut network = Network::open().map_err(refused("count the queues of the tun device"))?;
        let index = index(&mut network, &made.name)?;
        let state = state(&mut network, index)?;
        if is_ours(&state, 1, 0) && !state.stays {
            return Ok(made);
        }
        // Ours would not be its last queue, so it would stay.
        network
            .delete(index)
            .map_err(refused("delete a tun device that another process attached to"))?;
    }
    Err(IoError::Setup { step: JOINED, source: Error::from(ErrorKind::ResourceBusy) })
}

/// Number of waits, and time of each, for a queue that was closed just now: a child that another thread has just
/// begun may hold a copy of it until it becomes another program.
const LOOKS: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(2);

/// Makes sure that a device is ours and has these queues, so many that are parked, and no others.
///
/// # Errors
/// [`IoError::Setup`] where another process has one, or that cannot be asked.
pub(super) fn have_alone(name: &sys::DeviceName, queues: u16, parked: u16) -> Result<(), IoError> {
    let mut network = Network::open().map_err(refused("count the queues of the tun device"))?;
    let index = index(&mut network, name)?;
    for _ in 0..LOOKS {
        if is_ours(&state(&mut network, index)?, queues, parked) {
            return Ok(());
        }
        thread::sleep(BETWEEN);
    }
    let source = Error::from(ErrorKind::ResourceBusy);
    Err(IoError::Setup { step: "attach to the tun device exclusively", source })
}

fn is_ours(state: &TunState, queues: u16, parked: u16) -> bool {
    let owner = Some(sys::effective_user());
    state.owner == owner && (state.attached, state.disabled) == (queues.into(), parked.into())
}

fn state(network: &mut Network, index: u32) -> Result<TunState, IoError> {
    let step = "count the queues of the tun device";
    let found = network.tun_state(index).map_err(refused(step))?;
    let silent = || Error::new(ErrorKind::Unsupported, "the kernel does not say (Linux 4.17 does)");
    found.ok_or_else(|| IoError::Setup { step, source: silent() })
}

fn index(network: &mut Network, name: &sys::DeviceName) -> Result<u32, IoError> {
    let step = "find the tun device";
    let name = LinkName::new(name.as_str()).map_err(refused(step))?;
    Ok(network.link(&name).map_err(refused(step))?.index)
}

/// A name that cannot be guessed.
fn disguise() -> Result<sys::DeviceName, IoError> {
    // Its keys come from the system's random numbers.
    let number = RandomState::new().build_hasher().finish();
    sys::DeviceName::new(&format!("cv{:012x}", number >> 16))
}

fn gone() -> IoError {
    IoError::setup("find the tun device")(Error::from_raw_os_error(libc::ENODEV))
}

fn refused(step: &'static str) -> impl FnOnce(HostError) -> IoError {
    move |error| IoError::setup(step)(error.into_io())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_somebody_joined_are_thrown_away() {
        let work = || {
            let (mut strangers, mut names) = (Vec::new(), Vec::new());
            let made = in_sight(|| {
                let made = open_queue(&disguise()?)?;
                // One queue that shows, and some that were taken out.
                if strangers.len() < 4 {
                    let stranger = open_queue(&made.name)?.queue;
                    if !strangers.is_empty() {
                        sys::tun_detach(stranger.as_fd()).unwrap();
                    }
                    strangers.push(stranger);
                    names.push(made.name);
                }
                Ok(made)
            });
            let made = made.unwrap();
            assert_eq!(names.len(), 4);
            assert!(names.iter().all(|name| !exists(name.as_str()).unwrap()));
            assert!(exists(made.name.as_str()).unwrap());
            have_alone(&made.name, 1, 0).unwrap();
        };
        if let Err(error) = Netns::private(work) {
            println!("SKIPPED: {error}");
        }
    }

    /// A process that has a queue may say who the owner is, and that the device stays.
    #[test]
    fn devices_that_somebody_passed_through_are_thrown_away() {
        const NOBODY: u32 = 65534;
        let work = || {
            let mut names = Vec::new();
            let made = in_sight(|| {
                let made = open_queue(&disguise()?)?;
                if names.len() < 2 {
                    let stranger = open_queue(&made.name)?.queue;
                    match names.len() {
                        0 => sys::tun_set_owner(stranger.as_fd(), NOBODY).unwrap(),
                        _ => sys::tun_set_persist(stranger.as_fd(), true).unwrap(),
                    }
                    names.push(made.name);
                }
                Ok(made)
            });
            let made = made.unwrap();
            assert_eq!(names.len(), 2);
            assert!(names.iter().all(|name| !exists(name.as_str()).unwrap()));
            have_alone(&made.name, 1, 0).unwrap();
            sys::tun_set_owner(made.queue.as_fd(), NOBODY).unwrap();
            assert!(have_alone(&made.name, 1, 0).is_err());
        };
        if let Err(error) = Netns::private(work) {
            println!("SKIPPED: {error}");
        }
    }

    #[test]
    fn somebody_who_joins_every_device_is_told() {
        let work = || {
            let mut strangers = Vec::new();
            let refused = in_sight(|| {
                let made = open_queue(&disguise()?)?;
                strangers.push(open_queue(&made.name)?.queue);
                Ok(made)
            });
            let Err(IoError::Setup { source, .. }) = refused else { panic!("it was taken") };
            assert_eq!(source.kind(), ErrorKind::ResourceBusy);
        };
        if let Err(error) = Netns::private(work) {
            println!("SKIPPED: {error}");
        }
    }

    #[test]
    fn name_that_somebody_has_is_not_taken_from_them() {
        let work = || {
            let mut name = sys::DeviceName::new("held0").unwrap();
            let held = make(&mut name).unwrap();
            let refused = make(&mut name);
            let Err(IoError::Setup { source, .. }) = refused else { panic!("it was taken") };
            assert_eq!(source.kind(), ErrorKind::AlreadyExists);
            drop(held);
        };
        if let Err(error) = Netns::private(work) {
            println!("SKIPPED: {error}");
        }
    }
}
