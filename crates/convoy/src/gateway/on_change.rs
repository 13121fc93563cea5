//! States that are told when they change.

/// A state, of which only changes are told.
#[derive(Debug, Default)]
pub(super) struct OnChange<T>(T);

impl<T: PartialEq> OnChange<T> {
    /// Takes over the state of now; the one of before, if it was another.
    pub(super) fn set(&mut self, now: T) -> Option<T> {
        (now != self.0).then(|| core::mem::replace(&mut self.0, now))
    }

    pub(super) const fn get(&self) -> &T {
        &self.0
    }
}

impl OnChange<Option<String>> {
    /// Takes over a fault in words, or that there is none, and logs what has changed.
    pub(super) fn tell(&mut self, fault: Option<String>) {
        match self.news(fault) {
            Some(words) if self.0.is_some() => tracing::error!("{words}"),
            Some(words) => tracing::info!("{words}"),
            None => {}
        }
    }

    fn news(&mut self, fault: Option<String>) -> Option<String> {
        let before = self.set(fault)?;
        self.0.clone().or_else(|| before.map(|words| format!("resolved: {words}")))
    }
}

impl<T: PartialEq + std::fmt::Display> OnChange<Vec<T>> {
    /// Takes over faults of others, and logs which have come and gone.
    pub(super) fn tell_all(&mut self, faults: Vec<T>) {
        let Some(before) = self.set(faults) else { return };
        for fault in self.0.iter().filter(|fault| !before.contains(fault)) {
            tracing::warn!("{fault}");
        }
        for fault in before.iter().filter(|fault| !self.0.contains(fault)) {
            tracing::info!("resolved: {fault}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_lasts_is_told_once() {
        let mut fault = OnChange::default();
        let faults = [None, Some("one"), Some("one"), Some("other"), None, None];
        let told = faults.map(|now| fault.news(now.map(str::to_owned)));
        let news = [None, Some("one"), None, Some("other"), Some("resolved: other"), None];
        assert_eq!(told, news.map(|words| words.map(str::to_owned)));
    }
}
