//! The error of an access for which no part can leave: what uses the parts that stay.

use std::fmt::Write as _;

use runtime_core::{Error, ErrorKind};

use super::budget::{MemoryBudget, Wanted};
use super::ledger::Key;
use crate::call_site::At;

/// At most as many parts in use are named.
const NAMED: usize = 4;

/// Parts for which the message has one word.
#[derive(Default)]
struct Sum {
    parts: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.parts += 1;
        self.bytes += bytes;
    }

    /// Ends the message, if there are such parts.
    fn end(&self, message: &mut String, which: &str, what: &str) {
        let Self { parts, bytes } = self;
        let (s, verb) = if *parts == 1 { ("", "is") } else { ("s", "are") };
        if *parts > 0 {
            // Writing to a string does not fail.
            let _ = write!(message, "; {parts} {which}part{s} of {bytes} bytes {verb} {what}");
        }
    }
}

impl MemoryBudget {
    /// The error of an access for which no part can leave.
    pub(super) fn full(&self, wanted: &Wanted) -> Error {
        let (used, limit) = (self.used(), self.limit());
        let of = limit.map_or(String::new(), |limit| format!(" of {limit}"));
        let mut message = format!(
            "{} bytes for part {}: {used}{of} bytes of the memory budget are in use, and no part can leave",
            wanted.bytes, wanted.part
        );
        let residents: Vec<_> = {
            let account = self.account();
            let with_array = |(key, bytes, is_kept): (Key, u64, bool)| {
                let array = account.arrays.get(&key.0).map(|(array, at)| (array.clone(), *at));
                (key, bytes, is_kept, array)
            };
            account.ledger.residents().map(with_array).collect()
        };
        let (mut named, mut others, mut kept, mut needed) =
            (0, Sum::default(), Sum::default(), Sum::default());
        for ((owner, part), bytes, is_kept, array) in residents.into_iter().filter(|of| of.1 > 0) {
            let is_own = owner == wanted.owner;
            if is_own && wanted.needed.contains(part) {
                needed.add(bytes);
                continue;
            }
            // Not under the lock of the account: this may be the last reference to an array.
            let user = array.and_then(|(array, at)| array.upgrade()?.user(part, at));
            match user {
                Some(user) if named < NAMED => {
                    named += 1;
                    let of = if is_own { "" } else { " of another array" };
                    let _ = write!(
                        message,
                        "; part {part}{of} ({bytes} bytes) is used by {} (`{}`{})",
                        user.what,
                        user.access,
                        At(user.call_site)
                    );
                }
                None if is_kept => kept.add(bytes),
                _ => others.add(bytes),
            }
        }
        others.end(&mut message, if named > 0 { "other " } else { "" }, "in use");
        kept.end(&mut message, "", "kept by `Priority::Keep`");
        needed.end(&mut message, "", "needed by this access");
        wanted.error(ErrorKind::OutOfMemory, message).on(self.device().id())
    }
}
