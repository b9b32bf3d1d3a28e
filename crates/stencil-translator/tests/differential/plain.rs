// The prelude of stencils as plain Rust: what the names of the subset mean.
#![allow(warnings, arithmetic_overflow, overflowing_literals, unconditional_panic)]

#[repr(C)]
pub struct Ctx {
    pub index: [i64; 3],
    pub extent: [i64; 3],
    pub ends: [i64; 3],
}

#[derive(Clone, Copy)]
pub struct View<T, const N: usize> {
    point: *const T,
    // Reads give the values from before, also after `set`.
    result: *mut T,
    strides: [i64; 3],
}

pub type In<T, const N: usize> = View<T, N>;
pub type Out<T, const N: usize> = View<T, N>;
pub type InOut<T, const N: usize> = View<T, N>;

impl<T: Copy, const N: usize> View<T, N> {
    unsafe fn new(p: [*mut u8; 2], strides: *const [i64; 3]) -> Self {
        Self { point: p[0].cast(), result: p[1].cast(), strides: unsafe { *strides } }
    }
    fn moved(self, by: [i64; N]) -> Self {
        let by: i64 = by.iter().zip(&self.strides[3 - N..]).map(|(by, stride)| by * stride).sum();
        Self { point: self.point.wrapping_offset(by as isize), ..self }
    }
    fn get(self) -> T {
        unsafe { *self.point }
    }
    fn previous(self, by: [i64; N]) -> T {
        View::<T, N> { point: self.result, ..self }.moved(by).get()
    }
    fn set(self, value: T) {
        unsafe { *self.result = value }
    }
}
impl<T: Copy> View<T, 1> {
    fn at(self, a: i64) -> T { self.moved([a]).get() }
    fn shift(self, a: i64) -> Self { self.moved([a]) }
}
impl<T: Copy> View<T, 2> {
    fn at(self, a: i64, b: i64) -> T { self.moved([a, b]).get() }
    fn shift(self, a: i64, b: i64) -> Self { self.moved([a, b]) }
}
impl<T: Copy> View<T, 3> {
    fn at(self, a: i64, b: i64, c: i64) -> T { self.moved([a, b, c]).get() }
    fn shift(self, a: i64, b: i64, c: i64) -> Self { self.moved([a, b, c]) }
}

pub trait Extreme: PartialOrd + Sized {
    fn minimum(self, other: Self) -> Self { if self < other { self } else { other } }
    fn maximum(self, other: Self) -> Self { if self > other { self } else { other } }
}
impl<T: PartialOrd> Extreme for T {}
