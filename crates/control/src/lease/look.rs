//! A look at a state folder, which changes nothing and takes no lock.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;
use zeroize::Zeroizing;

use super::binding::{Binding, Machine};
use super::error::LeaseError;
use super::hash::HashKey;
use super::image::{BadImage, Image, VERSION};
use super::storage::{FRESH_KEY, HASH_KEY, Slot};
use crate::held;

/// Looks whether a folder was emptied, comes from another machine or is a copy, which [`LeaseKeeper::open`] refuses. What
/// cannot be read is not told, nor are damaged images: a gateway that runs may be writing them.
///
/// [`LeaseKeeper::open`]: super::LeaseKeeper::open
///
/// # Errors
/// The error with which a gateway would not start.
pub fn look(dir: &Path) -> Result<(), LeaseError> {
    let dir_buf = || dir.to_owned();
    let path = dir.join(HASH_KEY);
    let images = [Slot::A, Slot::B].map(|slot| dir.join(slot.file_name()));
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    let has_image = images.iter().any(|image| is_there(image));
    let (file, bytes) = match read(&path) {
        Ok(read) => read,
        // A key that has not got its name yet was never used.
        Err(error) if error.kind() != io::ErrorKind::NotFound || is_there(&dir.join(FRESH_KEY)) => {
            return Ok(());
        }
        Err(_) if has_image => return Err(LeaseError::HashKeyLost { dir: dir_buf() }),
        Err(_) if held::was_used(dir) => return Err(LeaseError::Emptied { dir: dir_buf() }),
        Err(_) => return Ok(()),
    };
    let key = HashKey::from_file(&bytes).ok_or(LeaseError::HashKeyDamaged { path })?;
    if !has_image {
        return Err(LeaseError::RecordsLost { dir: dir_buf() });
    }
    let mut newest: Option<Image> = None;
    for image in images.iter().filter_map(|image| read(image).ok()) {
        match Image::from_bytes(&image.1, &key) {
            Ok(image) if newest.as_ref().is_none_or(|it| it.generation < image.generation) => {
                newest = Some(image);
            }
            Err(BadImage::Version(found)) => {
                return Err(LeaseError::Version { found, known: VERSION });
            }
            _ => {}
        }
    }
    let Some(newest) = newest else { return Ok(()) };
    let here = Binding::new(&key, &Machine::current(), file.metadata().ok().as_ref());
    newest.binding.judge(&here).map(drop).map_err(LeaseError::foreign)
}

/// A file and what is in it. Whoever put something else there shall not have this wait for it.
fn read(path: &Path) -> io::Result<(File, Zeroizing<Vec<u8>>)> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let mut bytes = Zeroizing::new(Vec::new());
    file.read_to_end(&mut bytes)?;
    Ok((file, bytes))
}
