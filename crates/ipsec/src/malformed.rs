//! [`DropReason`] that counts a packet which does not parse.

use convoy_wire::ParseError;

use crate::drop_reason::DropReason;

/// For packets as they arrive, from either side. What ESP carried is counted as
/// [`DropReason::InnerMalformed`], whatever is wrong with it.
impl From<ParseError> for DropReason {
    fn from(error: ParseError) -> Self {
        reason(error)
    }
}

const fn reason(error: ParseError) -> DropReason {
    match error {
        ParseError::Truncated => DropReason::IpTruncated,
        ParseError::BadVersion => DropReason::IpVersion,
        ParseError::BadHeaderLength => DropReason::IpHeaderLength,
        ParseError::BadTotalLength | ParseError::LengthBeyondData => DropReason::IpTotalLength,
        ParseError::BadChecksum => DropReason::IpChecksum,
        ParseError::TooManyExtensions
        | ParseError::ExtensionsTooLong
        | ParseError::ExtensionTruncated
        | ParseError::ExtensionOrder => DropReason::ExtensionHeaders,
        ParseError::BadFragment => DropReason::BadFragment,
        ParseError::UpperTruncated => DropReason::UpperTruncated,
        ParseError::BadPadding => DropReason::BadPadding,
        ParseError::ZeroSpi => DropReason::UnknownSpi,
        // Errors of formats that are no packet of their own, and what may come.
        _ => DropReason::NotEsp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_defect_has_its_reason() {
        for (error, reason) in [
            (ParseError::Truncated, DropReason::IpTruncated),
            (ParseError::BadVersion, DropReason::IpVersion),
            (ParseError::BadHeaderLength, DropReason::IpHeaderLength),
            (ParseError::BadTotalLength, DropReason::IpTotalLength),
            (ParseError::LengthBeyondData, DropReason::IpTotalLength),
            (ParseError::BadChecksum, DropReason::IpChecksum),
            (ParseError::TooManyExtensions, DropReason::ExtensionHeaders),
            (ParseError::ExtensionsTooLong, DropReason::ExtensionHeaders),
            (ParseError::ExtensionTruncated, DropReason::ExtensionHeaders),
            (ParseError::ExtensionOrder, DropReason::ExtensionHeaders),
            (ParseError::BadFragment, DropReason::BadFragment),
            (ParseError::UpperTruncated, DropReason::UpperTruncated),
            (ParseError::BadPadding, DropReason::BadPadding),
            (ParseError::ZeroSpi, DropReason::UnknownSpi),
            (ParseError::NotAnIcmpError, DropReason::NotEsp),
        ] {
            assert_eq!(DropReason::from(error), reason);
        }
    }
}
