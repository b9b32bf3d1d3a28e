use array_buffer::{HostWriteGuard, Result};
use ndarray::Ix1;

fn misuse(mut a: HostWriteGuard<'_, f64, Ix1>, mut b: HostWriteGuard<'_, f64, Ix1>) {
    std::mem::swap(&mut *a, &mut *b);
}

fn main() {
    let _: Result<()> = Ok(());
}
