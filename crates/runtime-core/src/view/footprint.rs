//! The elements of a view, to compare with those of other views when the view has ended.

use std::fmt;
use std::sync::Weak;

use super::untyped::Untyped;
use crate::region::are_apart;
use crate::uses::Used;
use crate::{DeviceId, Layout};

/// The elements of a view, without the right to access them: see
/// [`MemoryView::footprint`](crate::MemoryView::footprint).
///
/// It does not keep the memory alive.
#[derive(Clone)]
pub struct Footprint {
    memory: Weak<dyn Used>,
    /// The device whose addresses these are. `None` for memory at addresses of the host.
    device: Option<DeviceId>,
    place: (usize, usize),
    layout: Layout,
}

impl Footprint {
    #[inline]
    pub(super) fn of(view: &Untyped<'_>) -> Option<Self> {
        let allocation = view.allocation();
        let memory = allocation.shared().filter(|_| !view.is_empty())?;
        let is_visible = allocation.is_host_visible() || allocation.device().has_host_addresses();
        let device = if is_visible { None } else { Some(allocation.device().id().clone()) };
        Some(Self { memory, device, place: view.place(), layout: view.layout })
    }

    /// Whether elements of both share bytes, and both memories still exist. The devices may differ if they have the
    /// same number, or if both memories are at addresses of the host: it can address them, or their devices have
    /// [host addresses](crate::Device::has_host_addresses). Otherwise as
    /// [`MemoryView::overlaps`](crate::MemoryView::overlaps).
    pub fn overlaps(&self, other: &Self) -> bool {
        let ((space, one), (another, two)) = (self.place, other.place);
        let low = one.min(two);
        (space, &self.device) == (another, &other.device)
            && !are_apart((one - low, &self.layout), (two - low, &other.layout))
            && [self, other].iter().all(|place| place.memory.strong_count() > 0)
    }
}

impl fmt::Debug for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Footprint({:?} at {:#x?})", self.layout, self.place)
    }
}
