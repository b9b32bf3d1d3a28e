//! The examples, small: the bits of plain loops on every device, for several numbers of ranks.
#![forbid(unsafe_code)]
#![allow(clippy::duplicate_mod, reason = "each example is a program of its own")]
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

#[path = "../../halo/tests/altered/mod.rs"]
mod altered;
#[path = "../../halo/tests/devices/mod.rs"]
#[macro_use]
mod devices;
mod messages;

use messages::by_messages;
use runtime_core::Device;

/// The rule of each example, with its file, cells and steps: any number of ranks has the bits of plain loops. The second
/// number of ranks exchanges by messages.
macro_rules! gallery {
    ($($example:ident $path:literal $cells:tt $steps:literal)*) => {
        $(
            #[path = $path]
            #[allow(dead_code, reason = "tests start no programs")]
            mod $example;

            fn $example(device: &Device) {
                check::$example(device, [1, 4]);
            }
        )*

        mod check {
            use super::{Device, by_messages};

            $(pub(super) fn $example(device: &Device, ranks: [usize; 2]) {
                let mut example = super::$example::EXAMPLE;
                (example.size.cells, example.size.steps) = ($cells, $steps);
                let [few, many] = ranks;
                if let Err(error) = example.compare(device, few) {
                    panic!("{few} ranks: {error}");
                }
                if let Err(error) = example.compare_over(device, many, by_messages) {
                    panic!("{many} ranks, by messages: {error}");
                }
            })*
        }

        /// More numbers of ranks.
        mod more {
            $(#[test] fn $example() {
                super::check::$example(&super::devices::host(), [2, 6]);
                super::check::$example(&super::devices::host(), [4, 2]);
            })*
        }
    };
}

gallery! {
    heat_3d "../examples/heat_3d/main.rs" [9, 7, 8] 4
    wave "../examples/wave/main.rs" [15, 11] 6
    shallow_water "../examples/shallow_water/main.rs" [12, 9] 4
    gray_scott "../examples/gray_scott/main.rs" [14, 12] 4
    hdiff "../examples/hdiff/main.rs" [3, 11, 13] 3
    upwind "../examples/upwind/main.rs" [13, 12] 4
    lattice_boltzmann "../examples/lattice_boltzmann/main.rs" [14, 11] 4
    chebyshev "../examples/chebyshev/main.rs" [12, 9] 60
    thomas "../examples/thomas/main.rs" [5, 7, 9] 3
}

on_all_devices!(
    heat_3d,
    wave,
    shallow_water,
    gray_scott,
    hdiff,
    upwind,
    lattice_boltzmann,
    chebyshev,
    thomas
);
