//! The recorded messages of one rank.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use backend_sim::{SimConfig, SimDevice};
use halo::communicator::{Buffer, Communicator, Recorder, Replay, ThreadCommunicator};
use halo::{
    Dim, ErrorKind, FieldSpec, HaloExchange, HaloOptions, Messages, Quantity, Result, Staging,
    Topology,
};
use runtime_core::{DType, Device};

const LONG: Duration = Duration::from_secs(30);

/// A result that depends on every message: each rank mixes the messages of its neighbours, over several steps.
fn program(ranks: &dyn Communicator) -> Result<Vec<u8>> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut state: Vec<u8> = (0..40).map(|i| if i == rank { 200 } else { 7 }).collect();
    for step in 0..5 {
        let mut requests = Vec::new();
        for peer in (0..size).filter(|peer| *peer != rank) {
            // The same line twice, completed in any order.
            for _ in 0..2 {
                requests.push(Some(ranks.send(peer, 1 + step, Buffer::host(state.clone()))?));
                requests.push(Some(ranks.receive(peer, 1 + step, Buffer::host(vec![0; 40]))?));
            }
        }
        let mut received = vec![None; requests.len()];
        while let Some((index, buffer)) = ranks.wait_any(&mut requests, LONG)? {
            received[index] = Some(buffer.to_vec()?);
        }
        for bytes in received.iter().flatten().skip(1).step_by(2) {
            for (own, other) in state.iter_mut().zip(bytes) {
                *own = own.wrapping_mul(3).wrapping_add(*other);
            }
        }
    }
    let all = ranks.all_gather(&state[..1], LONG)?;
    state.extend(all);
    Ok(state)
}

/// The result of rank 1 of 3, whose messages are recorded.
fn record(file: &Path) -> Vec<u8> {
    let results = ThreadCommunicator::run(3, |ranks| match ranks.rank() {
        1 => program(&Recorder::create(ranks, file)?),
        _ => program(&ranks),
    });
    results.unwrap().swap_remove(1).unwrap()
}

#[test]
fn a_replayed_rank_computes_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rank 1");
    let result = record(&file);
    for _ in 0..2 {
        let replay = Replay::open(&file).unwrap();
        assert_eq!((replay.rank(), replay.size(), replay.max_tag()), (1, 3, 32767));
        assert_eq!(program(&replay).unwrap(), result);
    }
}

/// The values of two fields of one of three ranks after three steps of an exchange. Each step starts with the result of
/// the step before.
fn steps(ranks: Arc<dyn Communicator>, options: &HaloOptions) -> [Vec<f64>; 2] {
    let topology = Topology::cartesian(&[9], &[3], &[true]).unwrap();
    let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
    let (rank, stream) = (ranks.rank() as f64, device.default_stream());
    let quantities = ["f", "g"].map(|name| {
        let dims = [Dim::axis(0, 3).halo(2, 1)];
        Quantity::scalar(FieldSpec::new(name, DType::F64, &dims).unwrap())
    });
    let mut halo = HaloExchange::new(ranks, &topology, &quantities, &device, options).unwrap();
    let mut values = [vec![rank; 6], vec![rank + 10.0; 6]];
    for _ in 0..3 {
        let mut memories =
            values.each_ref().map(|values| device.memory_from_slice(&stream, values).unwrap());
        let fields = &mut memories.each_mut().map(|memory| memory.view_mut().into());
        halo.exchange(&stream, fields).unwrap();
        values = memories.map(|memory| {
            let halos = memory.to_vec(&stream).unwrap();
            let mut values = halos.clone();
            (1..5).for_each(|i| values[i] = halos[i - 1] + 2.0 * halos[i] + 3.0 * halos[i + 1]);
            values
        });
    }
    values
}

#[test]
fn a_replayed_exchange_fills_the_same_halos() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rank 1");
    for messages in [Messages::Aggregate, Messages::Separate] {
        for staging in [Staging::Auto, Staging::Pinned] {
            let options = HaloOptions { messages, staging, ..Default::default() };
            let recorded = ThreadCommunicator::run(3, |ranks| match ranks.rank() {
                1 => steps(Arc::new(Recorder::create(ranks, &file).unwrap()), &options),
                _ => steps(Arc::new(ranks), &options),
            });
            let replayed = steps(Arc::new(Replay::open(&file).unwrap()), &options);
            assert_eq!(replayed, recorded.unwrap()[1]);
        }
    }
}

#[test]
fn messages_that_were_not_recorded_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rank 1");
    record(&file);
    let replay = Replay::open(&file).unwrap();
    let error = replay.receive(0, 9, Buffer::host(vec![0; 40])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerLost);
    assert!(error.message().starts_with("receive of 40 bytes from rank 0, tag 9"), "{error}");
    // Tag 1 had two messages.
    for expected in [None, None, Some(ErrorKind::PeerLost)] {
        let received = replay.receive(0, 1, Buffer::host(vec![0; 40]));
        assert_eq!(received.err().map(|error| error.kind()), expected);
    }
    let other = replay.receive(2, 1, Buffer::host(vec![0; 7])).unwrap();
    assert_eq!(replay.wait(other, LONG).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let error = replay.send(3, 1, Buffer::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn every_damaged_byte_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rank 1");
    record(&file);
    let whole = fs::read(&file).unwrap();
    let open = |bytes: &[u8]| {
        let file = folder.path().join("damaged");
        fs::write(&file, bytes).unwrap();
        Replay::open(file).map(drop).map_err(|error| (error.kind(), error.message().to_owned()))
    };
    assert_eq!(open(&whole), Ok(()));
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        assert_eq!(open(&damaged).unwrap_err().0, ErrorKind::InvalidArgument, "byte {at}");
    }
    // The head has 48 bytes, and a message of 40 bytes takes 88. Any other length ends in the middle of a message.
    for end in 0..300 {
        let ends_a_message = end >= 48 && (end - 48) % 88 == 0;
        assert_eq!(open(&whole[..end]).is_ok(), ends_a_message, "byte {end}");
    }
}

/// Records of earlier and later versions, otherwise intact.
#[test]
fn records_of_other_versions_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rank 1");
    record(&file);
    let mut bytes = fs::read(&file).unwrap();
    assert_eq!(bytes[8..16], 5_u64.to_le_bytes());
    for version in [0, 4, 6] {
        bytes[8] = version;
        let seal = crc32fast::hash(&bytes[..40]);
        bytes[40..48].copy_from_slice(&u64::from(seal).to_le_bytes());
        fs::write(&file, &bytes).unwrap();
        let error = Replay::open(&file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let words = format!("a record of version {version}; this program replays version 5");
        assert!(error.message().ends_with(&words), "{error}");
    }
}

#[test]
fn a_record_of_a_rank_that_does_not_exist_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rank 1");
    record(&file);
    let mut bytes = fs::read(&file).unwrap();
    for (rank, size) in [(2, 2), (0, 0), (9, 4)] {
        (bytes[16], bytes[24]) = (rank, size);
        let seal = crc32fast::hash(&bytes[..40]);
        bytes[40..48].copy_from_slice(&u64::from(seal).to_le_bytes());
        fs::write(&file, &bytes).unwrap();
        let error = Replay::open(&file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().ends_with(&format!("rank {rank} of {size} at byte 16")), "{error}");
    }
}

/// A program that requests a different message than the recorded one gets an error.
#[test]
fn a_message_with_another_mark_is_not_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rank 1");
    let marked = |ranks: &dyn Communicator, mark| {
        let received = ranks.receive(0, 1, Buffer::host(vec![0; 4]).marked(mark))?;
        ranks.wait(received, LONG)?.to_vec()
    };
    ThreadCommunicator::run(2, |ranks| match ranks.rank() {
        0 => drop(ranks.send(1, 1, Buffer::host(vec![3; 4]).marked(77)).unwrap()),
        _ => drop(marked(&Recorder::create(ranks, &file).unwrap(), 77).unwrap()),
    })
    .unwrap();
    assert_eq!(marked(&Replay::open(&file).unwrap(), 77).unwrap(), [3; 4]);
    let error = marked(&Replay::open(&file).unwrap(), 78).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().starts_with("another message came from rank 0, tag 1"), "{error}");
}

#[test]
fn files_that_cannot_be_used_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Replay::open(folder.path().join("missing")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Driver);
    let [ranks] = ThreadCommunicator::group(1).unwrap().try_into().unwrap();
    let error = Recorder::create(ranks, folder.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver);
}
