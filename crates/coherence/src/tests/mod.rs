//! Tests of the protocol: it is enumerated completely, and run at random.

mod exhaustive;
mod machine;
mod numbers;
mod random;

use super::state::{LANES, PartState, Paths, REPLICAS, Role};
use super::{Lane, PartId, PartSet, Set};

/// The number of replicas in the tests: the host's, and one on each of two devices.
const PLACES: u8 = 3;

/// One arrangement of devices.
#[derive(Clone, Copy, Debug)]
struct World {
    name: &'static str,
    paths: Paths,
    /// The lanes that work on each replica.
    lanes: [&'static [Lane]; PLACES as usize],
}

impl World {
    /// Whether a lane can wait for another lane without the host.
    fn waits(&self, who: Lane, on: Lane) -> bool {
        let at = |lane| self.lanes.iter().position(|lanes| lanes.contains(&lane));
        let (Some(who), Some(on)) = (at(who), at(on)) else { return false };
        who == on || self.paths.peers[who].iter().any(|peer| usize::from(peer) == on)
    }
}

/// The lanes of each replica; the first is the lane of the device's default stream.
type Lanes = [&'static [Lane]; PLACES as usize];
/// One stream on each device.
const ONE: Lanes = [&[0], &[1], &[2]];
/// Several streams on each device.
const MANY: Lanes = [&[0, 3], &[1, 4], &[2]];

fn world(name: &'static str, lanes: Lanes, peers: &[(u8, u8)]) -> World {
    let mut reach = [Set::EMPTY; REPLICAS];
    for (a, b) in peers {
        reach[usize::from(*a)].insert(*b);
        reach[usize::from(*b)].insert(*a);
    }
    let mut default = [0; REPLICAS];
    for (lane, of) in default.iter_mut().zip(lanes) {
        *lane = of[0];
    }
    let mut places = [0; LANES];
    for (at, lanes) in (0..).zip(lanes) {
        lanes.iter().for_each(|lane| places[usize::from(*lane)] = at);
    }
    let (host, locked, direct) = (Set::one(0), None, PartSet::EMPTY);
    let (workers, relays) = (Set::EMPTY, Set::EMPTY);
    let paths =
        Paths { host, peers: reach, lanes: default, locked, direct, workers, relays, places };
    World { name, paths, lanes }
}

/// Devices that do not reach each other.
fn apart(lanes: Lanes) -> World {
    let [_, a, b] = lanes;
    World { lanes: [&[], a, b], ..world("apart", lanes, &[]) }
}

/// Devices that reach each other.
fn peers(lanes: Lanes) -> World {
    let [_, a, b] = lanes;
    World { lanes: [&[], a, b], ..world("peers", lanes, &[(1, 2)]) }
}

/// A device that works in host memory, and a peer of that device.
fn shared(lanes: Lanes) -> World {
    let [host, _, b] = lanes;
    World { lanes: [host, &[], b], ..world("shared", lanes, &[(0, 2)]) }
}

/// A device for which the host's replica is page-locked, and a device that does not reach it. The parts in `direct` are
/// copied directly.
fn locked(lanes: Lanes, direct: PartSet) -> World {
    let mut world = World { name: "locked", ..apart(lanes) };
    (world.paths.locked, world.paths.direct) = (Some(1), direct);
    world
}

/// The same devices, but a thread prepares the copies of prefetches from and to these.
fn with_workers(world: World, devices: &[u8]) -> World {
    let workers = devices.iter().copied().collect();
    let paths = Paths { workers, relays: workers, ..world.paths };
    World { name: "workers", paths, ..world }
}

/// All sets of some of `count` parts.
fn subsets(count: usize) -> impl Iterator<Item = PartSet> + Clone {
    let is_chosen = |chosen: usize| move |part: &PartId| chosen & 1 << part != 0;
    (1..1_usize << count)
        .map(move |chosen| PartSet::below(count).iter().filter(is_chosen(chosen)).collect())
}

fn start(roles: &[Role]) -> Vec<PartState> {
    roles.iter().map(|role| PartState::new(*role)).collect()
}
