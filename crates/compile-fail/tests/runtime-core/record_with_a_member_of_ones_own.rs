//! A program cannot claim that a field has more bytes than it has.
#![forbid(unsafe_code)]

use runtime_core::{DType, Member, bytemuck, record};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[bytemuck(crate = "runtime_core::bytemuck")]
#[repr(C)]
struct Small(u8);

impl Member for Small {
    const ELEMENT: DType = DType::U8;
    const COUNT: usize = 8;
}

record! {
    struct Gap {
        small: Small,
        large: f64,
    }
}

fn main() {}
