//! Region copies by the kernel of the backends, against the execution in host memory.
#![expect(unsafe_code, reason = "runs programs in host memory")]

use std::fmt::Debug;

use crate::memory::{Memory, launch, line, p};
use crate::nvrtc::{architecture, compile, compiler};
use crate::random::Random;
use backend_support::{Binding, Dialect, Mapping, RegionKernel, RegionLimits};
use runtime_core::{HostSlot, RegionProgram};
use stand_in::ptx::Module;

/// The results of the programs in host memory, where some slots are absent.
fn on_host(program: &RegionProgram, slots: &[Vec<u8>], absent: &[bool]) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u128>> =
        slots.iter().map(|bytes| vec![0; bytes.len().div_ceil(16)]).collect();
    for (words, bytes) in words.iter_mut().zip(slots) {
        bytemuck::cast_slice_mut(words)[..bytes.len()].copy_from_slice(bytes);
    }
    let bind = |((words, bytes), absent): ((&mut Vec<u128>, &Vec<u8>), &bool)| match absent {
        true => HostSlot::ABSENT,
        false => HostSlot { base: words.as_mut_ptr().cast(), len: bytes.len() },
    };
    let bound: Vec<HostSlot> = words.iter_mut().zip(slots).zip(absent).map(bind).collect();
    // SAFETY: each slot that is there is a buffer of its own, aligned for every type and as long as the program needs.
    unsafe { program.run(&bound[..program.slots().len()]) };
    let bytes = |(words, bytes): (&Vec<u128>, &Vec<u8>)| {
        bytemuck::cast_slice(words)[..bytes.len()].to_vec()
    };
    words.iter().zip(slots).map(bytes).collect()
}

/// Their results by the kernel, with slots that begin at multiples of 8 bytes.
fn by_kernel(
    kernel: &RegionKernel,
    module: &Module,
    program: &RegionProgram,
    slots: &[Vec<u8>],
    absent: &[bool],
    random: &mut Random,
) -> Vec<Vec<u8>> {
    let limits = RegionLimits {
        compute_units: 1 + random.below(8),
        group_size: 1 + random.below(64),
        max_groups: 1 + random.below(9) as u64,
        slab: random.slab(),
    };
    let lowered = kernel.lower(program, limits).unwrap();
    let memory = Memory::default();
    let words = memory.upload(lowered.words());
    let bases: Vec<u64> = slots.iter().map(|_| 8 * random.below(4) as u64).collect();
    let place = |(bytes, base): (&Vec<u8>, &u64)| {
        memory.upload(&[vec![0x55; usize::try_from(*base).unwrap()], bytes.clone()].concat())
    };
    let placed: Vec<u64> = slots.iter().zip(&bases).map(place).collect();
    let address = |slot: usize| match absent[slot] {
        true => (0, 0),
        false => (placed[slot], bases[slot]),
    };
    for launched in lowered.launches() {
        let mut bound: Vec<(u64, u64)> = launched.slots.iter().map(|slot| address(*slot)).collect();
        let list =
            |bound: &[(u64, u64)]| bound.iter().flat_map(|(at, base)| p(at + base)).collect();
        let of_slots: Vec<Vec<u8>> = match kernel.binding() {
            Binding::Parameters(slots) => {
                bound.resize(slots, (0, 0));
                bound.iter().flat_map(|(address, base)| [p(*address), p(*base)]).collect()
            }
            Binding::List(slots) => {
                bound.resize(slots, (0, 0));
                vec![list(&bound)]
            }
            Binding::Table => vec![p(memory.upload::<u8>(&list(&bound)))],
        };
        let params = [vec![p(words), p(launched.start)], of_slots].concat();
        let [groups, threads] =
            [launched.groups, launched.group_size as u64].map(|n| u32::try_from(n).unwrap());
        launch(module, RegionKernel::NAME, &line(groups, threads), &params, &memory).unwrap();
    }
    let bytes = |((bytes, base), address): ((&Vec<u8>, &u64), &u64)| {
        memory.download(*address + *base, bytes.len())
    };
    slots.iter().zip(&bases).zip(&placed).map(bytes).collect()
}

fn compare(kernel: &RegionKernel, ptx: &str, seeds: u64) {
    let module = Module::parse(ptx).unwrap_or_else(|log| panic!("{kernel:?}: {log}"));
    for seed in 0..seeds {
        let mut random = Random::new(seed);
        let (entries, slots) = random.program();
        let program = RegionProgram::new(&entries).unwrap();
        compare_one(kernel, &module, &program, &slots, &mut random, &(seed, entries));
        let (entries, slots) = random.indexed();
        let program = RegionProgram::indexed(&entries).unwrap();
        compare_one(kernel, &module, &program, &slots, &mut random, &(seed, entries));
    }
}

fn compare_one(
    kernel: &RegionKernel,
    module: &Module,
    program: &RegionProgram,
    slots: &[Vec<u8>],
    random: &mut Random,
    what: &dyn Debug,
) {
    let absent: Vec<bool> = slots.iter().map(|_| random.below(6) == 0).collect();
    let found = by_kernel(kernel, module, program, slots, &absent, random);
    let expected = on_host(program, slots, &absent);
    assert!(found == expected, "{kernel:?}, {what:#?}");
}

#[test]
fn a_compiled_kernel_does_what_the_host_does() {
    // As NVRTC 12.0 compiles it for architecture 6.0.
    let kernel = RegionKernel::new(Mapping::Lanes, Binding::Parameters(4), true).unwrap();
    compare(&kernel, include_str!("data/region_copy.ptx"), 200);
}

#[test]
fn freshly_compiled_kernels_do_what_the_host_does() {
    let Some(nvrtc) = compiler() else { return };
    let architecture = format!("--gpu-architecture={}", architecture(nvrtc));
    for mapping in [Mapping::Runs, Mapping::Lanes] {
        let bindings = [2, 5, 32].map(Binding::Parameters).into_iter();
        let bindings = bindings.chain([Binding::List(5), Binding::Table]);
        for binding in bindings {
            let kernel = RegionKernel::new(mapping, binding, true).unwrap();
            let ptx = compile(nvrtc, &kernel.source(Dialect::CudaC), &[&architecture]);
            compare(&kernel, &ptx, 60);
            // Without double precision the rest is the same.
            let kernel = RegionKernel::new(mapping, binding, false).unwrap();
            Module::parse(&compile(nvrtc, &kernel.source(Dialect::CudaC), &[&architecture]))
                .unwrap();
        }
    }
}

/// The kernels of `backend-cuda` for any number of memories.
#[test]
fn shipped_kernels_do_what_the_host_does() {
    let shipped = [
        include_str!("../../../backend-cuda/src/ptx/region_copy_8.ptx"),
        include_str!("../../../backend-cuda/src/ptx/region_copy_32.ptx"),
        include_str!("../../../backend-cuda/src/ptx/region_copy_448.ptx"),
        include_str!("../../../backend-cuda/src/ptx/region_copy_any.ptx"),
    ];
    for (binding, ptx) in RegionKernel::BY_ADDRESS.into_iter().zip(shipped) {
        compare(&RegionKernel::new(Mapping::Lanes, binding, true).unwrap(), ptx, 60);
    }
}

#[test]
fn a_table_is_set_to_the_first_addresses_of_a_list() {
    let ptx = include_str!("../../../backend-cuda/src/ptx/region_table.ptx");
    let (module, memory) = (Module::parse(ptx).unwrap(), Memory::default());
    let list: Vec<u64> = (1000..).take(RegionKernel::MAX_LISTED).collect();
    for count in [1, 64, 100, list.len()] {
        let table = memory.upload(&vec![7_u64; list.len()]);
        let params = [p(table), p(count as u64), bytemuck::cast_slice(&list).to_vec()];
        launch(&module, RegionKernel::SETTER, &line(1, 64), &params, &memory).unwrap();
        let found: Vec<u64> = memory.download(table, list.len());
        assert_eq!(found[..count], list[..count]);
        assert!(found[count..].iter().all(|address| *address == 7));
    }
}
