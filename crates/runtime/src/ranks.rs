//! The same work on several ranks: threads of this process, or processes of an MPI job.

use std::env;
use std::error::Error as StdError;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use halo::communicator::{Communicator, ThreadCommunicator};
use runtime_core::{Device, DeviceRegistry, Error, ErrorKind, Result, Selector};

/// The longest time that ranks wait for one another.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One of the ranks that share some work.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rank {
    /// Its connection to the others.
    pub communicator: Arc<dyn Communicator>,
    /// Its device.
    pub device: Device,
    /// Whether it is the first rank that uses this opened device. Threads may share one.
    pub is_first_on_device: bool,
    /// Whether the ranks are processes of an MPI job. Otherwise they are threads of this process.
    pub is_process: bool,
}

impl Rank {
    /// Its number.
    pub fn number(&self) -> usize {
        self.communicator.rank()
    }

    /// The sums over all ranks. Collective. Blocks until all ranks have called it, at most a minute.
    ///
    /// # Errors
    ///
    /// As [`Communicator::all_gather`].
    pub fn sum<const N: usize>(&self, numbers: [u64; N]) -> Result<[u64; N]> {
        let mine = numbers.map(u64::to_ne_bytes);
        let all = self.communicator.all_gather(mine.as_flattened(), TIMEOUT)?;
        let all = all.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
        let mut sums = [0_u64; N];
        all.zip((0..N).cycle()).for_each(|(number, at)| sums[at] = sums[at].wrapping_add(number));
        Ok(sums)
    }
}

/// Calls `work` on each rank, and returns the result of rank 0 if it is in this process. The ranks are the processes of
/// the MPI job that this process belongs to, which needs the feature `mpi`; or otherwise as many threads as `count`
/// says, or one. A process belongs to a job if one of the variables `OMPI_COMM_WORLD_RANK`, `PMIX_RANK` and `PMI_RANK`
/// is set.
///
/// `selector` chooses the devices; `None` is what the environment variable [`DeviceRegistry::VARIABLE`] says, or
/// `host`. If it names a backend and none of its devices, as in `cuda`, the ranks of a machine take the devices of the
/// backend in turn.
///
/// The error of `work` is an [`Error`], a `Box<dyn std::error::Error + Send + Sync>`, or one like it, such as
/// `anyhow::Error`.
///
/// ```
/// # #[cfg(feature = "host")]
/// # fn main() -> runtime::Result<()> {
/// let sum = runtime::ranks::run(Some(3), Some("host"), |rank| -> runtime::Result<u64> {
///     let [sum] = rank.sum([rank.number() as u64])?;
///     Ok(sum)
/// })?;
/// assert_eq!(sum, Some(3));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "host"))]
/// # fn main() {}
/// ```
///
/// # Errors
///
/// `Conflict` for a second call in a process of an MPI job: MPI starts once. The errors of opening devices.
/// `InvalidArgument` if `count` is another number than that of the MPI job. `Unavailable` for a process of an MPI job
/// without the feature `mpi`. The error of a thread that failed: rather one of its own than one that other ranks have
/// caused. If a process fails, the whole job ends.
pub fn run<T, E>(
    count: Option<usize>,
    selector: Option<&str>,
    work: impl Fn(&Rank) -> Result<T, E> + Sync,
) -> Result<Option<T>, E>
where
    T: Send,
    E: From<Error> + AsRef<dyn StdError + Send + Sync> + Debug + Send,
{
    let variable = || env::var_os(DeviceRegistry::VARIABLE).filter(|value| !value.is_empty());
    let selector = match selector {
        Some(selector) => selector.to_owned(),
        None => variable().map_or("host".to_owned(), |value| value.to_string_lossy().into_owned()),
    };
    // Environment variables that Open MPI, MPICH and their derivatives set for the processes that they start.
    let variables = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
    match variables.into_iter().find(|variable| env::var_os(variable).is_some()) {
        Some(variable) => processes(count, &selector, variable, work),
        None => threads(count.unwrap_or(1), &selector, work),
    }
}

fn threads<T, E>(
    count: usize,
    selector: &str,
    work: impl Fn(&Rank) -> Result<T, E> + Sync,
) -> Result<Option<T>, E>
where
    T: Send,
    E: From<Error> + AsRef<dyn StdError + Send + Sync> + Send,
{
    let registry = crate::registry();
    let selectors = selectors(selector, &registry, count)?;
    let devices = selectors.iter().map(|selector| registry.open(selector));
    let devices = devices.collect::<Result<Vec<_>>>()?;
    let ended = ThreadCommunicator::run(count, |communicator| {
        let number = communicator.rank();
        work(&Rank {
            communicator: Arc::new(communicator),
            device: devices[number % devices.len()].clone(),
            is_first_on_device: number < devices.len(),
            is_process: false,
        })
    })?;
    let mut first = None;
    let mut failed = Vec::new();
    for (rank, ended) in ended.into_iter().enumerate() {
        match ended {
            Ok(result) if rank == 0 => first = Some(result),
            Ok(_) => {}
            Err(error) => failed.push(error),
        }
    }
    // A rank that lost another, or that learned that another failed, knows less about the cause.
    let reported = |error: &E| match kind(error.as_ref()) {
        Some(ErrorKind::PeerLost) => 2,
        Some(ErrorKind::InvalidArgument) => 1,
        _ => 0,
    };
    failed.into_iter().min_by_key(reported).map_or(Ok(first), Err)
}

/// The kind of the first error in a chain that has one.
fn kind(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    let own = error.downcast_ref::<Error>().map(Error::kind);
    own.or_else(|| kind(error.source()?))
}

#[cfg(feature = "mpi")]
fn processes<T, E>(
    count: Option<usize>,
    selector: &str,
    _: &'static str,
    work: impl Fn(&Rank) -> Result<T, E>,
) -> Result<Option<T>, E>
where
    E: From<Error> + Debug,
{
    let mut result = None;
    halo_mpi::run(|communicator| {
        let found = communicator.size();
        if let Some(asked) = count.filter(|asked| *asked != found) {
            let message = format!("{asked} ranks; the MPI job has {found}");
            return Err(E::from(Error::new(ErrorKind::InvalidArgument, "ranks", message)));
        }
        let registry = crate::registry();
        let selectors = selectors(selector, &registry, communicator.local_size())?;
        let selector = communicator.choose(&selectors).unwrap_or(&selectors[0]);
        let device = registry.open(selector)?;
        let is_first = communicator.rank() == 0;
        let communicator = Arc::new(communicator);
        let rank = Rank { communicator, device, is_first_on_device: true, is_process: true };
        let own = work(&rank)?;
        result = is_first.then_some(own);
        Ok::<(), E>(())
    })?;
    Ok(result)
}

#[cfg(not(feature = "mpi"))]
fn processes<T, E: From<Error>>(
    _: Option<usize>,
    _: &str,
    variable: &'static str,
    _: impl Fn(&Rank) -> Result<T, E>,
) -> Result<Option<T>, E> {
    let message = format!(
        "{variable} is set, so that this is a process of an MPI job, but the program was built without the feature mpi"
    );
    Err(Error::new(ErrorKind::Unavailable, "ranks", message).into())
}

/// The devices that `ranks` ranks take in turn, at least one.
fn selectors(given: &str, registry: &DeviceRegistry, ranks: usize) -> Result<Vec<String>> {
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
    Ok(vec![given.to_owned()])
}
