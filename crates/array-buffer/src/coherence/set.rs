//! Small sets of parts, replicas or streams.

use std::fmt;

/// A set of numbers below 64.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Set(pub(crate) u64);

impl Set {
    pub(crate) const EMPTY: Self = Self(0);

    #[inline]
    pub(crate) fn one(member: u8) -> Self {
        Self(1 << member)
    }

    /// The numbers below `count`, which is at most 64.
    #[inline]
    pub(crate) fn below(count: usize) -> Self {
        if count >= 64 { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    #[inline]
    pub(crate) fn contains(self, member: u8) -> bool {
        self.0 & (1 << member) != 0
    }

    #[inline]
    pub(crate) fn insert(&mut self, member: u8) {
        self.0 |= 1 << member;
    }

    #[inline]
    pub(crate) fn remove(&mut self, member: u8) {
        self.0 &= !(1 << member);
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    #[inline]
    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[inline]
    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[inline]
    pub(crate) fn is_subset(self, of: Self) -> bool {
        self.without(of).is_empty()
    }

    /// The smallest member.
    #[inline]
    pub(crate) fn first(self) -> Option<u8> {
        self.iter().next()
    }

    /// The members in increasing order.
    #[inline]
    pub(crate) fn iter(self) -> impl Iterator<Item = u8> + Clone {
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
        members.into_iter().for_each(|member| set.insert(member));
        set
    }
}

/// A compact set of lanes or replicas; a state contains many of these.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct SmallSet(u16);

impl SmallSet {
    pub(crate) const EMPTY: Self = Self(0);

    /// The members as a `Set`.
    #[inline]
    pub(crate) fn set(self) -> Set {
        Set(self.0.into())
    }

    /// One bit for each member.
    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0.into()
    }

    #[inline]
    pub(crate) fn contains(self, lane: u8) -> bool {
        self.set().contains(lane)
    }

    #[inline]
    pub(crate) fn insert(&mut self, lane: u8) {
        self.0 |= 1 << lane;
    }

    #[inline]
    pub(crate) fn remove(&mut self, lane: u8) {
        self.0 &= !(1 << lane);
    }

    #[inline]
    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Extend<u8> for SmallSet {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, members: I) {
        members.into_iter().for_each(|member| self.insert(member));
    }
}

impl fmt::Debug for SmallSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.set().fmt(f)
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
