//! Region copies by the kernel of the backends, against the execution in host memory.
#![expect(unsafe_code, reason = "runs programs in host memory")]

use crate::memory::{Memory, launch, line, p};
use crate::nvrtc::Nvrtc;
use crate::random::Random;
use backend_support::{Dialect, Mapping, RegionKernel, RegionLimits};
use runtime_core::{HostSlot, RegionProgram};
use stand_in::ptx::Module;

/// What the programs give in host memory, where some slots are absent.
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

/// What they give by the kernel, with slots that begin at multiples of 8 bytes.
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
        most_groups: 1 + random.below(9) as u64,
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
    for launched in lowered.launches() {
        let mut params = vec![p(words), p(launched.start)];
        for index in 0..kernel.slots() {
            let slot = launched.slots.get(index);
            let there = slot.filter(|slot| !absent[**slot]);
            let (address, base) = there.map_or((0, 0), |slot| (placed[*slot], bases[*slot]));
            params.extend([p(address), p(base)]);
        }
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
        let absent: Vec<bool> = slots.iter().map(|_| random.below(6) == 0).collect();
        let found = by_kernel(kernel, &module, &program, &slots, &absent, &mut random);
        let expected = on_host(&program, &slots, &absent);
        assert!(found == expected, "seed {seed}, {kernel:?}, {entries:#?}");
    }
}

#[test]
fn a_compiled_kernel_does_what_the_host_does() {
    // As NVRTC 12.0 compiles it for architecture 6.0.
    let kernel = RegionKernel::new(Mapping::Lanes, 4, true).unwrap();
    compare(&kernel, include_str!("data/region_copy.ptx"), 200);
}

#[test]
fn freshly_compiled_kernels_do_what_the_host_does() {
    let Some(nvrtc) = Nvrtc::named() else { return };
    let architecture = format!("--gpu-architecture={}", nvrtc.architecture());
    for mapping in [Mapping::Runs, Mapping::Lanes] {
        for slots in [2, 5, 32] {
            let kernel = RegionKernel::new(mapping, slots, true).unwrap();
            let ptx = nvrtc.compile(&kernel.source(Dialect::CudaC), &[&architecture]);
            compare(&kernel, &ptx, 60);
            // Without double precision the rest is the same.
            let kernel = RegionKernel::new(mapping, slots, false).unwrap();
            Module::parse(&nvrtc.compile(&kernel.source(Dialect::CudaC), &[&architecture]))
                .unwrap();
        }
    }
}
