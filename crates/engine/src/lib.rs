//! The crypto engine contract: submit a burst of jobs, poll a burst of results.
