//! The place for the result of a job.

use convoy_packet::Frame;

use crate::Status;

/// Frame and status into which an engine puts the result of one job.
#[derive(Debug)]
pub struct Output {
    pub(crate) frame: Frame,
    status: Status,
}

impl Output {
    pub(crate) fn new(frame: Frame) -> Self {
        Self { frame, status: Status::Pending }
    }

    /// Makes the output fit a job's packet. `false` if its chunk is too small.
    #[inline]
    pub(crate) fn prepare(&mut self, source: &Frame) -> bool {
        self.status = Status::Pending;
        self.frame.place_like(source).is_ok()
    }

    /// The bytes of the result: as many as the job's packet has, and of any value at first. All are the
    /// engine's to write, those around the text as they are in the source.
    #[inline]
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.frame.data_mut()
    }

    /// The bytes, and how the job ended.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut [u8], &mut Status) {
        (self.frame.data_mut(), &mut self.status)
    }

    /// Says how the job ended. Only of [`Status::Done`] the bytes are used.
    #[inline]
    pub const fn finish(&mut self, status: Status) {
        self.status = status;
    }

    /// State of the job.
    #[inline]
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }
}
