//! Sets of parts, replicas or streams.

use std::fmt;

/// A set of numbers below 64 × `WORDS`, with one bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bits<const WORDS: usize>(pub(crate) [u64; WORDS]);

/// A set of replicas or lanes, which are numbers below 64.
pub type Set = Bits<1>;
/// A set of parts, which are numbers below 256.
pub type PartSet = Bits<4>;

/// The numbers that one word has bits for.
const WORD: usize = 64;

/// The word of a number, and its bit there.
#[inline]
fn place(member: u8) -> (usize, u64) {
    (usize::from(member) / WORD, 1 << (usize::from(member) % WORD))
}

impl<const WORDS: usize> Bits<WORDS> {
    /// The set without members.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// The set of one number.
    #[inline]
    pub fn one(member: u8) -> Self {
        let mut set = Self::EMPTY;
        set.insert(member);
        set
    }

    /// The numbers below `count`, or all that the set has bits for.
    #[inline]
    pub fn below(count: usize) -> Self {
        let mut left = count;
        Self([(); WORDS].map(|()| {
            let here = left.min(WORD);
            left -= here;
            if here == WORD { u64::MAX } else { (1 << here) - 1 }
        }))
    }

    /// Whether a number is a member.
    #[inline]
    pub fn contains(self, member: u8) -> bool {
        let (word, bit) = place(member);
        self.0[word] & bit != 0
    }

    /// Adds a number.
    #[inline]
    pub fn insert(&mut self, member: u8) {
        let (word, bit) = place(member);
        self.0[word] |= bit;
    }

    /// Removes a number.
    #[inline]
    pub fn remove(&mut self, member: u8) {
        let (word, bit) = place(member);
        self.0[word] &= !bit;
    }

    /// Whether there is no member.
    #[inline]
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// The number of members.
    #[inline]
    pub fn len(self) -> usize {
        self.0.map(|word| word.count_ones() as usize).iter().sum()
    }

    #[inline]
    fn combine(mut self, other: Self, bits: fn(u64, u64) -> u64) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word = bits(*word, other));
        self
    }

    /// The members of either set.
    #[inline]
    pub fn union(self, other: Self) -> Self {
        self.combine(other, |a, b| a | b)
    }

    /// The members of both sets.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        self.combine(other, |a, b| a & b)
    }

    /// The members that `other` lacks.
    #[inline]
    pub fn without(self, other: Self) -> Self {
        self.combine(other, |a, b| a & !b)
    }

    /// Whether all members are in `of`.
    #[inline]
    pub fn is_subset(self, of: Self) -> bool {
        self.without(of).is_empty()
    }

    /// The smallest member.
    #[inline]
    pub fn first(self) -> Option<u8> {
        self.iter().next()
    }

    /// Whether `is` holds for each member. The members are tried in increasing order until it does not.
    #[inline(always)]
    pub fn all(&self, mut is: impl FnMut(u8) -> bool) -> bool {
        let mut left = self.0[0];
        while left != 0 {
            let [member, ..] = left.trailing_zeros().to_le_bytes();
            if !is(member) {
                return false;
            }
            left &= left - 1;
        }
        self.is_small() || self.all_beyond(is)
    }

    /// As `all`, for the members that are not in the first word.
    #[cold]
    fn all_beyond(&self, is: impl FnMut(u8) -> bool) -> bool {
        let mut beyond = *self;
        beyond.0[0] = 0;
        beyond.iter().all(is)
    }

    /// Whether all members are in the first word.
    #[inline]
    fn is_small(self) -> bool {
        self.0[1..].iter().fold(0, |all, word| all | word) == 0
    }

    /// The only member, if there is one and no other.
    #[inline]
    pub fn only(self) -> Option<u8> {
        let mut members = self.iter();
        members.next().filter(|_| members.next().is_none())
    }

    /// The members in increasing order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = u8> + Clone {
        let Self(mut left) = self;
        let mut base = 0;
        std::iter::from_fn(move || {
            if left[0] == 0 {
                if Self(left).is_small() {
                    return None;
                }
                next_word(&mut left, &mut base);
            }
            let [first, ..] = left[0].trailing_zeros().to_le_bytes();
            left[0] &= left[0] - 1;
            Some(base + first)
        })
    }
}

/// Moves the words down until the first has members. Some word has.
#[cold]
fn next_word<const WORDS: usize>(left: &mut [u64; WORDS], base: &mut u8) {
    while left[0] == 0 {
        left.rotate_left(1);
        *base += 64;
    }
}

impl Set {
    /// One bit for each member.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0[0]
    }
}

impl<const WORDS: usize> Default for Bits<WORDS> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const WORDS: usize> FromIterator<u8> for Bits<WORDS> {
    fn from_iter<I: IntoIterator<Item = u8>>(members: I) -> Self {
        let mut set = Self::EMPTY;
        set.extend(members);
        set
    }
}

impl<const WORDS: usize> Extend<u8> for Bits<WORDS> {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, members: I) {
        members.into_iter().for_each(|member| self.insert(member));
    }
}

impl<const WORDS: usize> fmt::Debug for Bits<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_every_word_are_found_in_order() {
        let mut set: PartSet = [191, 64, 63, 0, 128, 255].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 128, 191, 255]);
        assert!(
            set.len() == 6
                && set.is_subset(PartSet::below(256))
                && !set.is_subset(PartSet::below(255))
        );
        let mut tried = Vec::new();
        let found = set.all(|member| {
            tried.push(member);
            member < 128
        });
        assert_eq!((found, tried), (false, vec![0, 63, 64, 128]));
        assert!(set.all(|member| set.contains(member)) && set.only().is_none());
        assert_eq!([5, 200].map(|member| PartSet::one(member).only()), [Some(5), Some(200)]);
        set.remove(64);
        assert!(!set.contains(64) && set.contains(63) && set.first() == Some(0));
        for count in [0, 1, 63, 64, 65, 128, 191, 192, 255, 256, 1000] {
            assert_eq!(PartSet::below(count).len(), count.min(256));
        }
        assert_eq!(
            PartSet::below(130).without(PartSet::below(127)).iter().collect::<Vec<_>>(),
            [127, 128, 129]
        );
    }
}
