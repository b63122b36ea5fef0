//! Lookups that must not leave a directory, tried again while others move things.

use rustix::io::{Errno, Result};

/// The kernel gives a lookup up when anything on the machine is renamed or mounted during one of its `..`, so a neighbour that renames
/// without end could hold it up for ever.
const TRIES_MAX: usize = 128;

/// Tries a lookup again as the kernel asks for with EAGAIN, which is the answer in the end if it never gets through.
pub(crate) fn retried<T>(lookup: impl Fn() -> Result<T>) -> Result<T> {
    (1..TRIES_MAX).map(|_| lookup()).find(|found| !matches!(found, Err(Errno::AGAIN))).unwrap_or_else(lookup)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn lookup_is_tried_again_until_it_gets_through_but_not_for_ever() {
        let asked = Cell::new(0);
        let answers_after = |tries: usize| {
            asked.set(0);
            retried(|| {
                asked.set(asked.get() + 1);
                if asked.get() < tries { Err(Errno::AGAIN) } else { Ok(()) }
            })
        };
        assert_eq!((answers_after(1), asked.get()), (Ok(()), 1));
        assert_eq!((answers_after(TRIES_MAX), asked.get()), (Ok(()), TRIES_MAX));
        assert_eq!((answers_after(usize::MAX), asked.get()), (Err(Errno::AGAIN), TRIES_MAX));
    }
}
