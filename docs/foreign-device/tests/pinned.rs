//! Copies of one pinned memory on two streams: in the order of their calls and, under Miri, without a data race.

use std::sync::{Arc, Barrier};

use foreign_device::ForeignDevice;
use runtime_core::{Device, Grid, HostModule, Launch, Result, StreamOptions};

#[test]
fn two_streams_share_pinned_memory() -> Result<()> {
    let device = Device::new(ForeignDevice::new(0))?;
    let streams = [device.default_stream(), device.stream_create(&StreamOptions::default())?];
    let barrier = Arc::new(Barrier::new(2));
    let meet = HostModule::new().with("meet", move |_: &Grid<'_>| _ = barrier.wait());
    let meet = device.module_load(&meet)?.kernel("meet")?;
    let ones = device.memory_from_slice(&streams[0], &[1_u8; 64])?;
    let twos = device.memory_from_slice(&streams[1], &[2_u8; 64])?;
    let mut target = device.memory_allocate::<u8>(64)?;
    let mut pinned = device.pinned_allocate::<u8>(64)?;
    let rounds = 4;
    for _ in 0..rounds {
        // Both streams get to their copies at the same time.
        for stream in &streams {
            // SAFETY: the kernel has no arguments.
            unsafe { meet.launch(stream, &Launch::cover(1, 1), &[]) }?;
        }
        ones.view().copy_to_pinned(&streams[0], &mut pinned)?;
        twos.view().copy_to_pinned(&streams[1], &mut pinned)?;
        target.view_mut().copy_from_pinned(&streams[0], &pinned)?;
        ones.view().copy_to_pinned(&streams[1], &mut pinned)?;
        assert_eq!(target.to_vec(&streams[0])?, [2; 64]);
        assert_eq!(pinned.as_slice()?, [1; 64]);
        pinned.as_mut_slice()?.fill(3);
    }
    device.synchronize()
}
