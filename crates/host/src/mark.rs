/// A mark of packets (`SO_MARK` in `socket(7)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The value; bits outside of the mask are ignored.
    pub value: u32,
    /// The bits that count.
    pub mask: u32,
}

impl Mark {
    /// Mark of a gateway's own packets: 0xc5000000/0xff000000.
    pub const GATEWAY: Self = Self { value: 0xc500_0000, mask: 0xff00_0000 };
}
