//! The pages of host memory that are registered with a vendor's library.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use backend_support::lock;

/// The registered memory of this process: the bytes, by library and first page.
static REGISTERED: Mutex<BTreeMap<(&'static str, usize), Range<usize>>> =
    Mutex::new(BTreeMap::new());

/// The right to register some memory with a library. Some libraries refuse to register a page twice, others accept it
/// and unlock it too early, so no page has two claims.
#[derive(Debug)]
pub struct Claim {
    library: &'static str,
    page: usize,
}

impl Claim {
    /// Claims the pages of some bytes, or returns the bytes that have a claim on one of these pages.
    pub(crate) fn new(library: &'static str, bytes: Range<usize>) -> Result<Self, Range<usize>> {
        let pages = pages(&bytes);
        let mut registered = lock(&REGISTERED);
        // Claims do not overlap, so the last one that begins below the end is the only one in question.
        let last = registered.range(..(library, pages.end)).next_back();
        match last {
            Some(((of, _), other)) if *of == library && self::pages(other).end > pages.start => {
                Err(other.clone())
            }
            _ => {
                registered.insert((library, pages.start), bytes);
                Ok(Self { library, page: pages.start })
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&REGISTERED).remove(&(self.library, self.page));
    }
}

/// The addresses of the pages that hold some bytes.
fn pages(bytes: &Range<usize>) -> Range<usize> {
    let size = page_size::get();
    bytes.start / size * size..bytes.end.div_ceil(size).saturating_mul(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_has_two_claims_of_one_library() {
        let page = page_size::get();
        let bytes = |range: Range<usize>| 100 * page + range.start..100 * page + range.end;
        let claim = |range| Claim::new("a", bytes(range));
        let kept = claim(page + 1..2 * page + 1).unwrap();
        for range in [0..page + 1, 3 * page - 1..3 * page, page..page + 1, 0..9 * page] {
            assert_eq!(claim(range).unwrap_err(), bytes(page + 1..2 * page + 1));
        }
        let beside = [claim(0..page).unwrap(), claim(3 * page..4 * page).unwrap()];
        let other = Claim::new("b", bytes(page..2 * page)).unwrap();
        drop(kept);
        claim(page..3 * page).unwrap();
        drop((beside, other));
        claim(0..4 * page).unwrap();
        Claim::new("a", usize::MAX - 1..usize::MAX).unwrap();
    }
}
