//! Names that sites give: of gateways, SAs, policies and databases.

use super::source::has_secret_run;

/// True if a text can name a gateway, an SA or a policy.
pub(crate) fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=64).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(inner)
        && !has_secret_run(text)
}
