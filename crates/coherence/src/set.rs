//! Sets of parts, replicas or streams.

use std::fmt;

/// A set of parts, replicas or lanes, which are numbers below 64.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Set(pub(crate) u64);

impl Set {
    /// The set without members.
    pub const EMPTY: Self = Self(0);

    /// The set of one number below 64.
    #[inline]
    pub fn one(member: u8) -> Self {
        Self(1 << member)
    }

    /// The numbers below `count`, which is at most 64.
    #[inline]
    pub fn below(count: usize) -> Self {
        if count >= 64 { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    /// Whether a number below 64 is a member.
    #[inline]
    pub fn contains(self, member: u8) -> bool {
        self.0 & (1 << member) != 0
    }

    /// Adds a number below 64.
    #[inline]
    pub fn insert(&mut self, member: u8) {
        self.0 |= 1 << member;
    }

    /// Removes a number below 64.
    #[inline]
    pub fn remove(&mut self, member: u8) {
        self.0 &= !(1 << member);
    }

    /// Whether there is no member.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of members.
    #[inline]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The members of either set.
    #[inline]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members of both sets.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The members that `other` lacks.
    #[inline]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
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

    /// The members in increasing order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = u8> + Clone {
        let mut left = self.0;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let member = left.trailing_zeros().to_le_bytes()[0];
            left &= left - 1;
            Some(member)
        })
    }
}

impl FromIterator<u8> for Set {
    fn from_iter<I: IntoIterator<Item = u8>>(members: I) -> Self {
        let mut set = Self::EMPTY;
        set.extend(members);
        set
    }
}

impl Extend<u8> for Set {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, members: I) {
        members.into_iter().for_each(|member| self.insert(member));
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
