//! Images of leases from any bytes.

use zeroize::Zeroizing;

use super::hash::HashKey;
use super::image::Image;

/// Reads an image under a key that is always the same, with the MAC that its bytes should have if `is_signed`. How many
/// records it has, if it is one.
///
/// # Panics
/// If an image that was read is not the same when it is written and read again.
#[must_use]
pub fn lease_image(bytes: &[u8], is_signed: bool) -> Option<usize> {
    let key = HashKey::from_bytes(Zeroizing::new([7; 32]));
    let signed = if is_signed { Image::signed(bytes, &key) } else { None };
    let image = Image::from_bytes(signed.as_deref().unwrap_or(bytes), &key).ok()?;
    let again = Image::from_bytes(&image.to_bytes(&key), &key);
    assert!(again.as_ref() == Ok(&image), "{image:?} was read again as {again:?}");
    Some(image.records.len())
}
