//! A TUN device that another process may remove, and how it is made again.

use std::fs::File;
use std::os::fd::AsFd as _;

use super::config::{Config, attach, lengthen, negotiate};
use super::{TunPort, make};
use crate::{IoError, sys};

/// The queues of a device. Workers have them, too: what is a queue again here is one there.
#[derive(Debug)]
pub struct Device {
    queues: Vec<File>,
    name: sys::DeviceName,
    config: Config,
}

impl Device {
    /// The device of these ports, which were opened so.
    ///
    /// # Errors
    /// [`IoError::Setup`] when there are no more descriptors.
    pub fn of(ports: &[TunPort], config: Config) -> Result<Self, IoError> {
        let step = IoError::setup("hold the queues of the tun device");
        let queues: Result<Vec<_>, _> = ports.iter().map(|port| port.queue.try_clone()).collect();
        let name = match ports.first() {
            Some(port) => port.name,
            None => sys::DeviceName::new(&config.name)?,
        };
        Ok(Self { queues: queues.map_err(step)?, name, config })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The name that it has now; none if it was removed.
    #[must_use]
    pub fn name_now(&self) -> Option<String> {
        let queue = self.queues.first()?;
        sys::tun_name(queue.as_fd()).ok().map(|name| name.as_str().to_owned())
    }

    /// True if it was removed.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.queues.iter().any(|queue| !sys::is_tun_queue(queue.as_fd()))
    }

    /// Makes it again in the network namespace of the calling thread, down and without an address, as at the start.
    ///
    /// # Errors
    /// [`IoError::Setup`] when the kernel refuses, or another interface has its name.
    pub fn make_again(&self) -> Result<(), IoError> {
        let Some((first, others)) = self.queues.split_first() else { return Ok(()) };
        let mut name = self.name;
        make::make_of(first, &mut name)?;
        let step = "use a queue of the tun device again";
        for queue in others {
            attach(queue.try_clone().map_err(IoError::setup(step))?, &name)?;
        }
        make::have_alone(&name, self.config.queues, self.config.parked)?;
        for queue in &self.queues {
            negotiate(queue, self.config.offload)?;
        }
        lengthen(&name, &self.config)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use convoy_host::{LinkName, Netns, Network};
    use convoy_packet::{Arena, Burst, FrameSize};

    use super::super::open;
    use super::*;
    use crate::Port as _;

    fn remove(name: &str) {
        let mut network = Network::open().unwrap();
        let index = network.link(&LinkName::new(name).unwrap()).unwrap().index;
        network.delete(index).unwrap();
    }

    #[test]
    fn a_device_that_somebody_removes_is_made_again_as_it_was() {
        let arena = Arena::map(64, FrameSize::for_packet(1500)).unwrap();
        let work = || {
            let mut pool = arena.pool();
            let mut burst = Burst::new();
            for queues in [1, 3] {
                let config = Config { queues, returns: true, ..Config::new("gone0") };
                let mut ports = open(&config).unwrap();
                let device = Device::of(&ports, config).unwrap();
                assert!(!device.is_gone());
                assert_eq!(device.name_now().as_deref(), Some("gone0"));
                for _ in 0..2 {
                    remove("gone0");
                    assert!(device.is_gone());
                    assert_eq!(device.name_now(), None);
                    let waits = ports.iter_mut().map(|port| port.rx(&mut pool, &mut burst));
                    assert_eq!(waits.map(Result::unwrap).sum::<usize>(), 0);
                    device.make_again().unwrap();
                    assert!(!device.is_gone());
                }
                // Its name is another device's.
                remove("gone0");
                let _other = open(&Config::new("gone0")).unwrap();
                assert!(device.make_again().is_err());
            }
            let mut ports = open(&Config::new("dead0")).unwrap();
            remove("dead0");
            assert!(matches!(ports[0].rx(&mut pool, &mut burst), Err(IoError::Dead(_))));
        };
        if let Err(error) = Netns::private(work) {
            println!("SKIPPED: {error}");
        }
    }
}
