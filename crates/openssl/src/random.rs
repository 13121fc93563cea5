//! Random numbers of the system.

use rustix::{
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};

/// Fills a place with random bytes.
///
/// The system is called directly: the C library's getrandom(3) is a place where a cancelled thread ends, and
/// no function of a provider may end its caller's thread.
///
/// # Errors
///
/// `None`: the system has none.
pub(crate) fn fill(mut place: &mut [u8]) -> Option<()> {
    while !place.is_empty() {
        match getrandom(&mut *place, GetRandomFlags::empty()) {
            Ok(len) => place = place.get_mut(len..)?,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_are_the_same() {
        let mut places = [[0; 40]; 2];
        places.iter_mut().for_each(|place| super::fill(place).unwrap());
        assert_ne!(places[0], places[1]);
        assert!(places[0][32..] != [0; 8]);
    }
}
