//! Choice of the frames that are taken, as steps that both kinds of BPF can make.
//!
//! Jumps go forward only, so every program ends.

/// Number of bytes that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    One,
    Two,
    Four,
}

impl Width {
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
        }
    }
}

/// Comparison of the bytes with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Equal(u32),
    AtLeast(u32),
}

/// Target of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goto {
    /// The step behind this one.
    Next,
    /// A label, to be placed later.
    Label(usize),
    /// The gateway takes the frame.
    Take,
    /// The frame is the kernel's.
    Leave,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Looks at a big-endian number in the frame. A frame that ends before it is left.
    If { at: u32, width: Width, mask: u32, test: Test, yes: Goto, no: Goto },
    /// Goes on elsewhere.
    Go(Goto),
}

/// Steps and where their labels are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
    /// For each label the number of the step it stands before.
    pub(crate) labels: Vec<usize>,
}

impl Program {
    /// A label, not placed yet.
    pub(crate) fn label(&mut self) -> usize {
        self.labels.push(usize::MAX);
        self.labels.len() - 1
    }

    /// Places a label before the next step.
    pub(crate) fn place(&mut self, label: usize) {
        let here = self.steps.len();
        if let Some(place) = self.labels.get_mut(label) {
            *place = here;
        }
    }

    pub(crate) fn go(&mut self, to: Goto) {
        self.steps.push(Step::Go(to));
    }

    /// Adds a look at `width` bytes at `at`, all bits of them.
    pub(crate) fn check(&mut self, at: u32, width: Width, test: Test, yes: Goto, no: Goto) {
        self.check_masked(at, width, u32::MAX, test, yes, no);
    }

    pub(crate) fn check_masked(
        &mut self,
        at: u32,
        width: Width,
        mask: u32,
        test: Test,
        yes: Goto,
        no: Goto,
    ) {
        self.steps.push(Step::If { at, width, mask, test, yes, no });
    }

    /// True if the program takes a frame.
    #[cfg(test)]
    pub(crate) fn takes(&self, frame: &[u8]) -> bool {
        let mut at = 0;
        loop {
            let goto = match self.steps[at] {
                Step::Go(goto) => goto,
                Step::If { at: offset, width, mask, test, yes, no } => {
                    let from = offset as usize;
                    let Some(bytes) = frame.get(from..from + width.bytes() as usize) else {
                        return false;
                    };
                    let value = bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b)) & mask;
                    let holds = match test {
                        Test::Equal(wanted) => value == wanted,
                        Test::AtLeast(least) => value >= least,
                    };
                    if holds { yes } else { no }
                }
            };
            at = match goto {
                Goto::Next => at + 1,
                Goto::Label(label) => self.labels[label],
                Goto::Take => return true,
                Goto::Leave => return false,
            };
        }
    }
}
