//! Planned faults.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use backend_support::lock;
use runtime_core::Error;

use crate::codes;

/// The operations that a fault's number `nth` counts. Counts begin with 1 when the device is opened. A call counts
/// whether or not it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Allocations of device and pinned memory, and registrations of host memory.
    Allocation,
    /// Every operation that moves bytes: copies in every direction, fills, region copies.
    Copy,
    /// Kernel launches.
    Launch,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Allocation => "allocation",
            Self::Copy => "copy",
            Self::Launch => "launch",
        })
    }
}

/// One planned fault. It occurs once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// `None` counts operations of all kinds together.
    at: Option<Operation>,
    nth: u64,
    effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Fail,
    FailLate,
    Lose,
    Hang(Duration),
}

impl Fault {
    /// The `nth` call of its kind fails and has no effect: `OutOfMemory` for an allocation, `Driver` for a copy,
    /// `DeviceFault` for a launch. If a failed allocation is retried after the pool was trimmed, as
    /// [`Device`](runtime_core::Device) does, it fails again.
    pub fn fail(operation: Operation, nth: u64) -> Self {
        Self { at: Some(operation), nth, effect: Effect::Fail }
    }

    /// The `nth` call of its kind succeeds. The operation fails when its turn in the stream comes, with the error of
    /// [`fail`](Self::fail). Allocations and blocking copies fail before they return.
    pub fn fail_late(operation: Operation, nth: u64) -> Self {
        Self { at: Some(operation), nth, effect: Effect::FailLate }
    }

    /// The device is lost at the `nth` operation of any kind. Work still waiting in streams has no effect.
    pub fn lose(nth: u64) -> Self {
        Self { at: None, nth, effect: Effect::Lose }
    }

    /// The `nth` launch takes `time` before it does anything.
    pub fn hang(nth: u64, time: Duration) -> Self {
        Self { at: Some(Operation::Launch), nth, effect: Effect::Hang(time) }
    }
}

/// The outcome of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It succeeds, possibly after a delay.
    Run(Duration),
    /// The call fails.
    Fail(Operation, u64),
    /// It fails when it runs.
    FailLate(Operation, u64),
    /// The device is lost.
    Lose,
}

impl Fate {
    /// The error of a failing operation.
    pub(crate) fn error(operation: Operation, nth: u64) -> Error {
        let message = format!("{operation} {nth} fails as planned");
        match operation {
            Operation::Allocation => codes::out_of_memory("allocate", message),
            Operation::Copy => codes::copy_failed(message),
            Operation::Launch => codes::launch_failed(message),
        }
    }
}

/// The pending faults, and the counts that trigger them.
#[derive(Debug)]
pub(crate) struct FaultPlan(Mutex<Plan>);

#[derive(Debug, Default)]
struct Plan {
    faults: Vec<Fault>,
    of_kind: [u64; 3],
    of_any: u64,
}

impl FaultPlan {
    pub(crate) fn new(faults: &[Fault]) -> Self {
        Self(Mutex::new(Plan { faults: faults.to_vec(), ..Plan::default() }))
    }

    pub(crate) fn add(&self, fault: Fault) {
        self.with(|plan| plan.faults.push(fault));
    }

    /// Counts an operation. If several faults apply, the one that was planned first occurs.
    pub(crate) fn next(&self, operation: Operation) -> Fate {
        self.with(|plan| {
            plan.of_any += 1;
            let of_kind = &mut plan.of_kind[operation as usize];
            *of_kind += 1;
            let (of_kind, of_any) = (*of_kind, plan.of_any);
            let due = |fault: &Fault| match fault.at {
                None => fault.nth == of_any,
                Some(kind) => kind == operation && fault.nth == of_kind,
            };
            let Some(index) = plan.faults.iter().position(due) else {
                return Fate::Run(Duration::ZERO);
            };
            match plan.faults.remove(index).effect {
                Effect::Fail => Fate::Fail(operation, of_kind),
                Effect::FailLate => Fate::FailLate(operation, of_kind),
                Effect::Lose => Fate::Lose,
                Effect::Hang(time) => Fate::Run(time),
            }
        })
    }

    fn with<R>(&self, f: impl FnOnce(&mut Plan) -> R) -> R {
        f(&mut lock(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Fate = Fate::Run(Duration::ZERO);

    #[test]
    fn faults_count_their_own_kind() {
        let second = Duration::from_secs(1);
        let plan = FaultPlan::new(&[
            Fault::fail(Operation::Copy, 2),
            Fault::fail_late(Operation::Launch, 1),
            Fault::hang(2, second),
        ]);
        let order = [
            Operation::Copy,
            Operation::Launch,
            Operation::Copy,
            Operation::Launch,
            Operation::Copy,
        ];
        let fates: Vec<_> = order.into_iter().map(|operation| plan.next(operation)).collect();
        assert_eq!(
            fates,
            [
                RUN,
                Fate::FailLate(Operation::Launch, 1),
                Fate::Fail(Operation::Copy, 2),
                Fate::Run(second),
                RUN
            ]
        );
    }

    #[test]
    fn the_device_is_lost_at_an_operation_of_any_kind() {
        let plan = FaultPlan::new(&[]);
        plan.add(Fault::lose(3));
        assert_eq!(plan.next(Operation::Allocation), RUN);
        assert_eq!(plan.next(Operation::Copy), RUN);
        assert_eq!(plan.next(Operation::Launch), Fate::Lose);
        assert_eq!(plan.next(Operation::Launch), RUN);
    }
}
