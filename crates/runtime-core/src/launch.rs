//! The shape of a kernel launch.

/// The number of work-items in a launch: `grid` blocks of `block` work-items each, x first.
///
/// A launch with a zero in any dimension runs nothing. It is checked as any other launch: its dimensions must be within
/// the device's limits.
///
/// ```
/// use runtime_core::Launch;
///
/// let launch = Launch::cover(1000, 256);
/// assert_eq!((launch.grid, launch.block), ([4, 1, 1], [256, 1, 1]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Work-items of a block along x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory per block.
    pub shared_bytes: u32,
    /// Whether all blocks must be resident at once, so that they can synchronise with each other.
    pub cooperative: bool,
}

impl Launch {
    /// A launch of `grid` blocks of `block` work-items.
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self { grid, block, shared_bytes: 0, cooperative: false }
    }

    /// A launch of enough blocks of `block` work-items to cover `items` in one dimension. Saturates at `u32::MAX`
    /// blocks, which no device accepts. A `block` of 0 counts as 1.
    pub const fn cover(items: usize, block: u32) -> Self {
        let block = if block == 0 { 1 } else { block };
        Self::new([blocks(items, block), 1, 1], [block, 1, 1])
    }

    /// A launch of enough blocks to cover `width` × `height` work-items. Saturates as [`cover`](Self::cover) does.
    pub const fn cover_2d(width: usize, height: usize, block: [u32; 2]) -> Self {
        let x = if block[0] == 0 { 1 } else { block[0] };
        let y = if block[1] == 0 { 1 } else { block[1] };
        Self::new([blocks(width, x), blocks(height, y), 1], [x, y, 1])
    }

    /// The same launch with `bytes` of dynamic shared memory per block.
    #[must_use]
    pub const fn with_shared(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// The same launch, but cooperative.
    #[must_use]
    pub const fn cooperative(mut self) -> Self {
        self.cooperative = true;
        self
    }

    /// Whether the launch has no work-items.
    pub const fn is_empty(&self) -> bool {
        let [x, y, z] = self.grid;
        let [i, j, k] = self.block;
        x == 0 || y == 0 || z == 0 || i == 0 || j == 0 || k == 0
    }
}

const fn blocks(items: usize, block: u32) -> u32 {
    let blocks = items.div_ceil(block as usize);
    if blocks > u32::MAX as usize {
        return u32::MAX;
    }
    #[expect(clippy::cast_possible_truncation, reason = "compared with u32::MAX above")]
    let blocks = blocks as u32;
    blocks
}
