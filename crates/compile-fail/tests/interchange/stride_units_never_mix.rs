//! Strides in bytes are no strides in elements.

use interchange::{ByteStrides, ElemStrides};

fn main() {
    let bytes = ByteStrides::from([8]);
    let _elements: ElemStrides = bytes;
}
