//! The ranks of a run (threads of this process or processes of an MPI job) and the device of each rank.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use runtime::halo::communicator::{Communicator, ThreadCommunicator};
use runtime::{Device, DeviceRegistry, ErrorKind, Selector};

use crate::args::Args;
use crate::error::DemoError;

const TIMEOUT: Duration = Duration::from_secs(60);

/// One of the ranks that share the terrain.
pub(crate) struct Rank {
    pub(crate) communicator: Arc<dyn Communicator>,
    pub(crate) device: Device,
    /// Whether this rank reports its device's statistics. Threads may share a device.
    pub(crate) reports_device: bool,
    pub(crate) kind: RankKind,
}

/// The kind of the ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RankKind {
    Thread,
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "there is no MPI"))]
    Process,
}

impl Rank {
    pub(crate) fn number(&self) -> usize {
        self.communicator.rank()
    }

    /// The sums over all ranks. All ranks call it together, and wait for the last one.
    pub(crate) fn sum<const N: usize>(&self, numbers: [u64; N]) -> Result<[u64; N], DemoError> {
        let mine = numbers.map(u64::to_ne_bytes);
        let all = self.communicator.all_gather(mine.as_flattened(), TIMEOUT)?;
        let all = all.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
        let mut sums = [0; N];
        all.zip((0..N).cycle()).for_each(|(number, index)| sums[index] += number);
        Ok(sums)
    }
}

/// Calls `work` as each of the ranks. These are the ranks of the MPI job that this process belongs to, or otherwise as
/// many threads as `args` specifies. Returns the result of the first rank, if it is in this process.
pub(crate) fn run<T: Send>(
    args: &Args,
    work: impl Fn(&Rank) -> Result<Option<T>, DemoError> + Sync,
) -> Result<Option<T>, DemoError> {
    // Environment variables that Open MPI, MPICH and their derivatives set for the processes that they start.
    let variables = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
    match variables.into_iter().find(|variable| env::var_os(variable).is_some()) {
        Some(variable) => processes(args, variable, work),
        None => threads(args, work),
    }
}

fn threads<T: Send>(
    args: &Args,
    work: impl Fn(&Rank) -> Result<Option<T>, DemoError> + Sync,
) -> Result<Option<T>, DemoError> {
    let ranks = args.ranks.unwrap_or(1);
    let registry = runtime::registry();
    let devices = selectors(args, &registry, ranks)?;
    let devices: Vec<Device> =
        devices.iter().map(|device| registry.open(device)).collect::<Result<_, _>>()?;
    let ended = ThreadCommunicator::run(ranks, |communicator| {
        let number = communicator.rank();
        work(&Rank {
            communicator: Arc::new(communicator),
            device: devices[number % devices.len()].clone(),
            reports_device: number < devices.len(),
            kind: RankKind::Thread,
        })
    })?;
    let (ended, failed): (Vec<_>, Vec<_>) = ended.into_iter().partition(Result::is_ok);
    // The errors of ranks that lost a failed rank, or that learned that another rank has no plan, are less informative.
    let failed = failed.into_iter().filter_map(Result::err);
    let reported = |error: &DemoError| match error.kind() {
        Some(ErrorKind::PeerLost) => 2,
        Some(ErrorKind::InvalidArgument) => 1,
        _ => 0,
    };
    match failed.min_by_key(reported) {
        Some(error) => Err(error),
        None => Ok(ended.into_iter().flatten().flatten().next()),
    }
}

#[cfg(feature = "mpi")]
fn processes<T>(
    args: &Args,
    _: &'static str,
    work: impl Fn(&Rank) -> Result<Option<T>, DemoError>,
) -> Result<Option<T>, DemoError> {
    let mut result = None;
    runtime::mpi::run(|communicator| {
        let found = communicator.size();
        if let Some(asked) = args.ranks.filter(|asked| *asked != found) {
            return Err(DemoError::RanksOfJob { asked, found });
        }
        let registry = runtime::registry();
        let selectors = selectors(args, &registry, communicator.local_size())?;
        let selector = communicator.choose(&selectors).unwrap_or(&selectors[0]);
        let device = registry.open(selector)?;
        let communicator = Arc::new(communicator);
        let kind = RankKind::Process;
        result = work(&Rank { communicator, device, reports_device: true, kind })?;
        Ok(())
    })?;
    Ok(result)
}

#[cfg(not(feature = "mpi"))]
fn processes<T>(
    _: &Args,
    variable: &'static str,
    _: impl Fn(&Rank) -> Result<Option<T>, DemoError>,
) -> Result<Option<T>, DemoError> {
    Err(DemoError::NoMpi { variable })
}

/// The devices that `ranks` ranks take in turn. A selector that names no particular device of its backend stands for
/// all of them.
fn selectors(
    args: &Args,
    registry: &DeviceRegistry,
    ranks: usize,
) -> Result<Vec<String>, DemoError> {
    let variable =
        || env::var_os(DeviceRegistry::VARIABLE).map(|v| v.to_string_lossy().into_owned());
    let given = args.device.clone().or_else(variable).filter(|device| !device.is_empty());
    let given = given.unwrap_or_else(|| "host".to_owned());
    let selector: Selector = given.parse()?;
    if ranks > 1 && selector.parts().is_empty() {
        let listing = registry.list().into_iter().find(|known| known.backend == selector.backend());
        let options = given.find('?').map_or("", |start| &given[start..]);
        let devices = listing.and_then(|listing| listing.devices.ok()).unwrap_or_default();
        if !devices.is_empty() {
            let all = devices.iter().take(ranks);
            return Ok(all.map(|device| format!("{}{options}", device.id)).collect());
        }
    }
    Ok(vec![given])
}
