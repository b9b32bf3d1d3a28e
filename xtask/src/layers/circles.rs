//! Circles of imports among the files of a crate. [`ALLOWED`] lists those that stay.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Result;

use super::imports::{Imports, imports};
use crate::cargo::root;

/// Files of a crate of which each imports, directly or through others, from every other one.
#[derive(Clone, Copy, Debug)]
struct Circle {
    package: &'static str,
    /// The paths from `src`, separated by spaces.
    files: &'static str,
    reason: &'static str,
}

/// The circles that stay.
const ALLOWED: &[Circle] = &[
    Circle {
        package: "backend-gpu",
        files: "allocation.rs config.rs context.rs device.rs event.rs gate.rs kernel.rs launch.rs memory.rs \
                open_device.rs pinned.rs pool.rs program.rs raw_stream.rs reaper.rs region.rs stream.rs vendor.rs",
        reason: "the trait `Vendor` has methods that take the objects of a device, and these objects are generic over \
                 `Vendor`",
    },
    Circle {
        package: "backend-hip",
        files: "kernels.rs module.rs",
        reason: "a device's own kernels are loaded as modules, and the modules of a device keep the loaded kernels",
    },
    Circle {
        package: "backend-support",
        files: "event.rs queue.rs",
        reason: "recording an event submits work to a queue, and a queue marks the uses of retired objects with events",
    },
    Circle {
        package: "backend-support",
        files: "region_kernel/lower.rs region_kernel/mod.rs region_kernel/source.rs",
        reason: "the methods of `RegionKernel` call the lowering and the source text, which depend on the properties \
                 of a `RegionKernel`",
    },
    Circle {
        package: "halo",
        files: "communicator/collective.rs communicator/envelope.rs communicator/mod.rs communicator/thread/claims.rs \
                communicator/thread/direct.rs communicator/thread/group.rs",
        reason: "`communicator/mod.rs` defines the trait of transports, whose provided methods use the collective \
                 calls and the direct access of this library",
    },
    Circle {
        package: "interchange",
        files: "exchange.rs state.rs",
        reason: "the state of an `ArrayExchange` is a type parameter, and the methods that change the state are next \
                 to the states",
    },
    Circle {
        package: "python",
        files: "array/block.rs array/copy.rs array/host.rs array/mod.rs array/work.rs current.rs device.rs module.rs \
                pinned.rs protocol/export.rs protocol/import.rs stream.rs",
        reason: "a Python class refers to the classes that its methods return: arrays, devices, streams, modules",
    },
    Circle {
        package: "runtime-core",
        files: "element.rs record.rs",
        reason: "a record is a type of elements, and its fields are elements",
    },
    Circle {
        package: "runtime-core",
        files: "capture.rs device.rs graph.rs interop.rs kernel.rs mark.rs memory.rs pinned.rs region/emulation.rs \
                region_plan.rs slot.rs stream.rs uses.rs view/footprint.rs view/mod.rs view/run.rs \
                view/untyped.rs",
        reason: "a device creates streams, memory, kernels and graphs; each of these has methods that take the others, \
                 and refers to its device",
    },
    Circle {
        package: "runtime-core",
        files: "contract/abilities.rs contract/accelerator.rs contract/common.rs contract/graph.rs contract/interop.rs \
                contract/module.rs contract/stream.rs host_module.rs image.rs info.rs",
        reason: "the traits of the contract take each other's objects, and a module image may contain host functions, \
                 whose signatures have the contract's types",
    },
    Circle {
        package: "runtime-core",
        files: "region/kernels.rs region/overlap.rs region/program.rs region/schedule.rs",
        reason: "a program is made of lowered copies and their schedule, and these are described by types of the \
                 program",
    },
    Circle {
        package: "runtime-core",
        files: "region/loops.rs region/tiles.rs",
        reason: "loops over large boxes run tile by tile, and a tile is run by loops",
    },
];

/// Returns the circles that are not in the list, and those of the list that do not exist.
pub(super) fn violations() -> Result<Vec<String>> {
    let mut folders = vec![root().join("xtask")];
    for package in fs::read_dir(root().join("crates"))? {
        folders.push(package?.path());
    }
    folders.sort();
    let (mut found, mut packages) = (Vec::new(), BTreeSet::new());
    for folder in folders {
        let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let allowed: Vec<_> = ALLOWED.iter().filter(|circle| circle.package == package).collect();
        let roots = ["lib.rs", "main.rs"].map(|file| folder.join("src").join(file));
        for root in roots.iter().filter(|root| root.exists()) {
            found.extend(check(&package, &imports(root)?, &allowed));
        }
        packages.insert(package);
    }
    let absent = ALLOWED.iter().filter(|circle| !packages.contains(circle.package));
    found.extend(absent.map(|circle| format!("{} is listed, and is no crate", circle.package)));
    Ok(found)
}

fn check(package: &str, imports: &Imports, allowed: &[&Circle]) -> Vec<String> {
    let Imports { files, edges } = imports;
    let circles = circles(imports);
    let names = |circle: &BTreeSet<usize>| -> BTreeSet<&str> {
        circle.iter().map(|file| &*files[*file]).collect()
    };
    let is = |circle: &BTreeSet<usize>, allowed: &Circle| {
        names(circle) == allowed.files.split(' ').collect()
    };
    let mut found = Vec::new();
    for circle in circles.iter().filter(|circle| !allowed.iter().any(|allowed| is(circle, allowed)))
    {
        let inner = edges.iter().filter(|(from, to)| circle.contains(from) && circle.contains(to));
        let inner: Vec<_> =
            inner.map(|(from, to)| format!("  {} -> {}", files[*from], files[*to])).collect();
        let files: Vec<_> = names(circle).into_iter().collect();
        found.push(format!(
            "{package}: these files import each other: {}\n{}",
            files.join(", "),
            inner.join("\n")
        ));
    }
    for allowed in
        allowed.iter().filter(|allowed| !circles.iter().any(|circle| is(circle, allowed)))
    {
        let Circle { files, reason, .. } = allowed;
        found.push(format!("{package}: no circle of {files} ({reason})"));
    }
    found
}

/// The sets of files that import each other.
fn circles(Imports { files, edges }: &Imports) -> Vec<BTreeSet<usize>> {
    let reached: Vec<_> = (0..files.len()).map(|file| reachable(edges, file)).collect();
    let circle = |file: usize| -> BTreeSet<usize> {
        reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect()
    };
    let mut all: Vec<_> = (0..files.len()).map(circle).filter(|circle| circle.len() > 1).collect();
    all.sort();
    all.dedup();
    all
}

/// The files to which imports lead from a file, and that file.
fn reachable(edges: &BTreeSet<(usize, usize)>, start: usize) -> BTreeSet<usize> {
    let (mut found, mut next) = (BTreeSet::new(), vec![start]);
    while let Some(file) = next.pop() {
        if found.insert(file) {
            next.extend(edges.range((file, 0)..(file + 1, 0)).map(|(_, to)| *to));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_crate_has_a_circle_that_is_not_listed() {
        let found = violations().unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn a_circle_must_be_listed_and_a_listed_circle_must_exist() {
        let files = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let imports = Imports { files, edges: [(0, 1), (1, 2), (2, 3), (3, 1)].into() };
        let listed = |files| Circle { package: "p", files, reason: "test" };
        let found = check("p", &imports, &[]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("p: these files import each other: b, c, d\n  b -> c\n"));
        assert_eq!(check("p", &imports, &[&listed("d c b")]), [""; 0]);
        let found = check("p", &imports, &[&listed("b c")]);
        assert_eq!((found.len(), &*found[1]), (2, "p: no circle of b c (test)"));
    }
}
