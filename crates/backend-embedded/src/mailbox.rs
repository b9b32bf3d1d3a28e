//! The mailbox that host and monitor share. `firmware/monitor/mailbox.h` has the same numbers.

use crate::processor::{Arguments, Fault};

const INTEGERS: usize = 64;
const FLOATS: usize = 128;
const GUARDS: usize = 192;
const STACK: usize = 208;
const CALL: u64 = 2;
const COPY: u64 = 5;

/// The size and alignment of a page that is guarded against writes.
pub(crate) const GUARD_BYTES: u64 = 4096;

/// The byte by which each side signals the other to read the mailbox.
pub(crate) const RING: u8 = 1;

/// An answer of the monitor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    /// The monitor has started.
    Ready,
    /// The monitor has finished the request.
    Done {
        /// Both result registers.
        integers: [u64; 2],
        float: u64,
        /// The number of instructions that the function retired, if the processor counts them.
        instructions: u64,
    },
    /// The function was stopped.
    Fault {
        fault: Fault,
        /// As for `Done`.
        instructions: u64,
    },
}

/// An empty mailbox.
pub(crate) fn empty() -> [u8; 8] {
    [0; 8]
}

/// A mailbox with a request to call the code at `entry`, with the stack below `stack`.
pub(crate) fn call(entry: u64, stack: u64, arguments: &Arguments) -> Vec<u8> {
    let mut bytes = vec![0; STACK];
    put(&mut bytes, 0, &[CALL, entry, arguments.stack.len() as u64, 0, 0, 0, 0, stack]);
    put(&mut bytes, INTEGERS, &arguments.integers);
    put(&mut bytes, FLOATS, &arguments.floats);
    bytes.extend_from_slice(&arguments.stack);
    bytes
}

/// Makes a call guard pages against writes: the page at `below_stack`, and the page at address 0 if `null` is set.
pub(crate) fn guard(request: &mut [u8], below_stack: Option<u64>, null: bool) {
    put(request, GUARDS, &[below_stack.map_or(0, |page| page | 1), null.into()]);
}

/// A mailbox with a request to copy bytes from one address to another.
pub(crate) fn copy(to: u64, from: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; FLOATS];
    put(&mut bytes, 0, &[COPY]);
    put(&mut bytes, INTEGERS, &[to, from, length]);
    bytes
}

/// The number of bytes that [`answer`] reads.
pub(crate) const ANSWER_BYTES: usize = STACK;

/// Returns the answer, unless the monitor is still working.
pub(crate) fn answer(bytes: &[u8; ANSWER_BYTES]) -> Option<Answer> {
    let [state, _, _, instructions, cause, pc, address] = words(bytes, 0);
    match state {
        1 => Some(Answer::Ready),
        3 => {
            let [float] = words(bytes, FLOATS);
            Some(Answer::Done { integers: words(bytes, INTEGERS), float, instructions })
        }
        4 => Some(Answer::Fault { fault: Fault { cause, pc, address }, instructions }),
        _ => None,
    }
}

fn put(bytes: &mut [u8], at: usize, words: &[u64]) {
    for (place, word) in bytes[at..].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

fn words<const N: usize>(bytes: &[u8], at: usize) -> [u64; N] {
    let mut words = [0; N];
    for (word, place) in words.iter_mut().zip(bytes[at..].chunks_exact(8)) {
        *word = place.try_into().map_or(0, u64::from_le_bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::STACK_BYTES;

    #[test]
    fn host_and_firmware_use_the_same_numbers() {
        let header = include_str!("../firmware/monitor/mailbox.h");
        let number = |name: &str| -> usize {
            let line = format!("#define {name} ");
            let (_, rest) = header.split_once(&line).unwrap();
            rest.split_whitespace().next().unwrap().parse().unwrap()
        };
        let words = [
            "STATE",
            "FUNCTION",
            "STACK_BYTES",
            "INSTRUCTIONS",
            "CAUSE",
            "PC",
            "ADDRESS",
            "STACK_POINTER",
        ];
        for (index, name) in words.into_iter().enumerate() {
            assert_eq!(number(name), 8 * index, "{name}");
        }
        let expected = [
            ("INTEGERS", INTEGERS),
            ("FLOATS", FLOATS),
            ("GUARDS", GUARDS),
            ("STACK", STACK),
            ("GUARD_BYTES", GUARD_BYTES.try_into().unwrap()),
            ("MAILBOX_BYTES", STACK + STACK_BYTES),
            ("READY", 1),
            ("CALL", 2),
            ("DONE", 3),
            ("FAULT", 4),
            ("COPY", 5),
            ("RING", RING.into()),
        ];
        for (name, value) in expected {
            assert_eq!(number(name), value, "{name}");
        }
    }

    #[test]
    fn a_request_is_not_taken_for_a_reply() {
        let mut bytes = call(0x10, 0x20, &Arguments::default());
        assert_eq!(answer(bytes[..].try_into().unwrap()), None);
        bytes[0] = 4;
        bytes[32] = 5;
        let fault = Fault { cause: 5, pc: 0, address: 0 };
        let expected = Some(Answer::Fault { fault, instructions: 0 });
        assert_eq!(answer(bytes[..].try_into().unwrap()), expected);
    }
}
